#pragma once

#include <cstdint>
#include <string>

// The messages of file distribution (--push). Each begins with its kind.
namespace smp::agent {

enum class FileMessage : uint64_t {
  kRoom = 0,  // bytes of all files
  kFile = 1,  // name, bytes, whether it is executable
  kPart = 2,  // the next bytes of the file
  kEnd = 3,   // the sum of the file's bytes
  kAll = 4,   // no more
};

// The sum of a file goes from part to part: bytes that are lost, changed or in another order
// change it.
uint64_t sum_with(uint64_t sum, const std::string& part);

}  // namespace smp::agent
