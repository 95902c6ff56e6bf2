#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/base/dtype.h"

// Files of tensors in the safetensors format: u64 length N, N bytes of JSON, then the data. The
// writer orders tensors as the reference does (alignment descending, then name, header padded to
// 8), so every tensor is aligned. The reader refuses everything that the reference parser refuses.
// Objects are used by one thread at a time.
namespace smp::files {
class AtomicFile;
}

namespace smp::safetensors {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the data
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // in the order of their data
  std::map<std::string, std::string> metadata;  // "__metadata__"
  int64_t data_offset = 0;                      // of the data in the file
};

// "F32" and the like. The parser gives nothing for a type that is not read here.
const char* safetensors_name_of(DType dtype);
std::optional<DType> parse_safetensors_dtype(std::string_view name);

// A broken file. what() names the path, the problem and its place.
class SafetensorsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Parses the first bytes of a file of file_bytes bytes; `head` holds at least the whole header, or
// the whole file when that is shorter. `path` is for the error texts.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view head,
                                           int64_t file_bytes);

// Length and JSON of a header over these tensors; sorts them and sets their begin and end.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata);

class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const SafetensorsHeader& header() const { return header_; }
  const SafetensorsEntry* find(std::string_view name) const;  // null when there is none
  void read(const SafetensorsEntry& entry, void* out) const;  // entry.bytes() bytes
  // Bytes [offset, offset + bytes) of its data.
  void read(const SafetensorsEntry& entry, int64_t offset, int64_t bytes, void* out) const;

 private:
  std::string path_;
  int fd_ = -1;
  SafetensorsHeader header_;
  std::map<std::string_view, const SafetensorsEntry*> by_name_;  // into header_
};

// Writes tensors in any order, each piece by piece from its start; the file appears at finish().
class SafetensorsWriter {
 public:
  // begin and end of the entries are computed here.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in file order
  void append(std::string_view name, const void* data, int64_t bytes);       // the next of a tensor
  void finish();

 private:
  std::unique_ptr<files::AtomicFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<int64_t> written_bytes_;  // of each entry
  int64_t data_offset_ = 0;
};

}  // namespace smp::safetensors
