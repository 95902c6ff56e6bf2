#include "smp/tensorfiles/checkpoint/checkpoint_shards.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include "smp/plan/base/check.h"
#include "smp/plan/base/xxh64.h"
#include "smp/plan/text/json.h"

namespace smp::checkpoint {
namespace {

// Written and hashed at once; a multiple of the hashed blocks.
constexpr int64_t kWriteBytes = 8 * kHashBlockBytes;

SavedTensor saved_of(const safetensors::TensorPiece& piece, const model::Box& box) {
  SavedTensor saved;
  saved.name = piece.name;
  saved.dtype = piece.dtype;
  saved.shape = piece.shape;
  saved.offsets = {box.row_begin};
  saved.sizes = {box.rows()};
  if (piece.shape.size() == 2) {
    saved.offsets.push_back(box.col_begin);
    saved.sizes.push_back(box.cols());
  }
  return saved;
}

// "DCP_SHARDING_INFO" and its neighbours, as torch/distributed/checkpoint/_hf_utils.py names them.
std::map<std::string, std::string> metadata_of(const std::vector<SavedTensor>& tensors) {
  text::OrderedJson offsets = text::OrderedJson::object();
  for (const SavedTensor& tensor : tensors) {
    offsets[tensor.name] = {{"saved_offsets", tensor.offsets}};
  }
  return {{"DCP_SHARDING_INFO", offsets.dump()}, {"DCP_VERSION", "1.0"}, {"format", "pt"}};
}

// Pages that are there already: the first touch of a page costs more than its copy.
std::byte* take_host_memory(int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(
        errno, std::generic_category(),
        fmt::format("out of host memory: a checkpoint's buffer of {} bytes could not be allocated",
                    bytes));
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::string part_name(int64_t rank) { return fmt::format("part-{:05}.json", rank); }

RankShards::RankShards(int64_t rank, const std::vector<safetensors::TensorPiece>& pieces)
    : rank_(rank) {
  struct Part {
    const safetensors::TensorPiece* piece;
    safetensors::Rectangle rectangle;
  };
  std::vector<std::map<std::string, Part>> parts;  // of each file, by name
  std::map<std::string, size_t> seen;              // rectangles of each tensor so far
  for (const safetensors::TensorPiece& piece : pieces) {
    for (const safetensors::Rectangle& rectangle : safetensors::rectangles_of(piece)) {
      const size_t file = seen[piece.name]++;
      if (file == parts.size()) parts.emplace_back();
      parts[file].emplace(piece.name, Part{&piece, rectangle});
    }
  }
  for (size_t k = 0; k < parts.size(); ++k) {
    File& file = files_.emplace_back();
    file.name =
        fmt::format("shard-{:05}-model-{:05}-of-{:05}.safetensors", rank + 1, k + 1, parts.size());
    file.begin = bytes_;
    std::vector<safetensors::SafetensorsEntry> entries;
    std::vector<SavedTensor> saved;
    for (const auto& [name, part] : parts[k]) {
      saved.push_back(saved_of(*part.piece, part.rectangle.box));
      entries.push_back({name, part.piece->dtype, saved.back().sizes});
    }
    file.header = safetensors::make_safetensors_header(entries, metadata_of(saved));
    for (const safetensors::SafetensorsEntry& entry : entries) {
      const Part& part = parts[k].at(entry.name);
      file.tensors.push_back(saved_of(*part.piece, part.rectangle.box));
      const int64_t element = bytes_of(part.piece->dtype);
      sources_.push_back({part.piece->data + part.rectangle.offset * element,
                          file.begin + entry.begin, entry.bytes()});
      file.bytes = entry.end;
    }
    bytes_ += (file.bytes + 7) / 8 * 8;  // the next one begins aligned
  }
  host_ = take_host_memory(bytes_);
}

RankShards::~RankShards() {
  if (host_ != nullptr) ::munmap(host_, static_cast<size_t>(bytes_));
}

void RankShards::copy() {
  for (const Source& source : sources_) {
    std::memcpy(host_ + source.at, source.data, static_cast<size_t>(source.bytes));
  }
}

SavedFile RankShards::write_file(const std::string& folder, const File& file,
                                 files::FileCalls& calls) const {
  SavedFile saved;
  saved.name = file.name;
  saved.tensors = file.tensors;
  const auto header_bytes = static_cast<int64_t>(file.header.size());
  saved.bytes = header_bytes + file.bytes;
  files::AtomicFile out(folder + "/" + file.name, calls);
  out.write_at(0, file.header.data(), header_bytes);
  int64_t at = 0;  // of the file's data
  for (SavedTensor& tensor : saved.tensors) {
    const std::byte* const data = host_ + file.begin + at;
    const int64_t bytes = tensor.bytes();
    for (int64_t begin = 0; begin < bytes; begin += kWriteBytes) {
      const int64_t end = std::min(bytes, begin + kWriteBytes);
      for (int64_t block = begin; block < end; block += kHashBlockBytes) {
        tensor.hashes.push_back(xxh64(data + block, std::min(kHashBlockBytes, end - block)));
      }
      out.write_at(header_bytes + at + begin, data + begin, end - begin);
    }
    at += bytes;
  }
  SMP_CHECK_EQ(at, file.bytes);
  out.commit();
  return saved;
}

void RankShards::write(const std::string& folder, int64_t step, files::FileCalls& calls) const {
  Manifest part;
  part.step = step;
  for (const File& file : files_) part.files.push_back(write_file(folder, file, calls));
  files::write_file_atomically(folder + "/" + part_name(rank_), to_json(part), calls);
}

}  // namespace smp::checkpoint
