#pragma once

#include <cstdint>
#include <string>

// The messages of file distribution (--push). Each begins with its kind.
namespace smp::agent {

enum class FileMessage : uint64_t {
  kRoom = 0,  // bytes of all files
  kFile = 1,  // name, bytes, whether it is executable
  kPart = 2,  // the next bytes of the file
  kEnd = 3,   // the checksum of the file
  kAll = 4,   // no more files
};

// The checksum of a file after one more part. Lost, changed or reordered bytes change the checksum.
uint64_t sum_with(uint64_t sum, const std::string& part);

}  // namespace smp::agent
