#include "smp/tensorfiles/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "smp/plan/base/check.h"
#include "smp/plan/base/xxh64.h"

namespace smp::checkpoint {
namespace {

constexpr size_t kMostOpenFiles = 64;

model::Box box_of(const SavedTensor& tensor) {
  const bool is_matrix = tensor.shape.size() == 2;
  model::Box box{tensor.offsets[0], tensor.offsets[0] + tensor.sizes[0], 0, 1};
  if (is_matrix) {
    box.col_begin = tensor.offsets[1];
    box.col_end = tensor.offsets[1] + tensor.sizes[1];
  }
  return box;
}

model::Box meeting_of(const model::Box& a, const model::Box& b) {
  return {std::max(a.row_begin, b.row_begin), std::min(a.row_end, b.row_end),
          std::max(a.col_begin, b.col_begin), std::min(a.col_end, b.col_end)};
}

std::string manifest_text(const std::string& path) {
  std::error_code none;
  std::ifstream file;
  if (std::filesystem::is_regular_file(path, none))
    file.open(path, std::ios::binary);  // no FIFO: it would wait
  if (!file.is_open()) {
    throw CheckpointError(fmt::format("{}: cannot be read: the checkpoint is not complete", path));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// "'name' [4:8, 0:16]"
std::string words_of(const SavedTensor& tensor) {
  const model::Box box = box_of(tensor);
  if (tensor.shape.size() == 1) {
    return fmt::format("'{}' [{}:{}]", tensor.name, box.row_begin, box.row_end);
  }
  return fmt::format("'{}' [{}:{}, {}:{}]", tensor.name, box.row_begin, box.row_end, box.col_begin,
                     box.col_end);
}

// One stored rectangle as bytes, of which every block is checked before it is used.
class CheckedBytes {
 public:
  CheckedBytes(const std::string& path, const safetensors::SafetensorsReader& reader,
               const SavedTensor& tensor, std::vector<std::byte>& block)
      : path_(path), reader_(reader), tensor_(tensor), block_(block) {
    entry_ = reader.find(tensor.name);
    if (entry_ == nullptr || entry_->dtype != tensor.dtype || entry_->shape != tensor.sizes) {
      throw CheckpointError(
          fmt::format("{}: {} is missing from the file, although the manifest lists it there", path,
                      words_of(tensor)));
    }
    block_.resize(static_cast<size_t>(kHashBlockBytes));
  }

  // Bytes [from, from + count). Those of the next call come behind them.
  void read(int64_t from, int64_t count, std::byte* out) {
    while (count > 0) {
      const int64_t index = from / kHashBlockBytes, inside = from % kHashBlockBytes;
      const int64_t whole = bytes_of_block(index);
      const int64_t part = std::min(count, whole - inside);
      if (part == whole) {
        load(index, out);
      } else {
        if (index != loaded_) load(index, block_.data());
        loaded_ = index;
        std::memcpy(out, block_.data() + inside, static_cast<size_t>(part));
      }
      from += part;
      out += part;
      count -= part;
    }
  }

  int64_t bytes_read() const { return bytes_read_; }

 private:
  int64_t bytes_of_block(int64_t index) const {
    return std::min(kHashBlockBytes, entry_->bytes() - index * kHashBlockBytes);
  }

  void load(int64_t index, std::byte* into) {
    const int64_t begin = index * kHashBlockBytes, bytes = bytes_of_block(index);
    try {
      reader_.read(*entry_, begin, bytes, into);
    } catch (const safetensors::SafetensorsError& error) {
      throw CheckpointError(fmt::format("{}; it holds {}", error.what(), words_of(tensor_)));
    }
    bytes_read_ += bytes;
    if (xxh64(into, bytes) == tensor_.hashes[static_cast<size_t>(index)]) return;
    throw CheckpointError(
        fmt::format("{}: {}, bytes {} to {} of its data do not match their hash: the file was "
                    "changed or damaged after it was written",
                    path_, words_of(tensor_), begin, begin + bytes));
  }

  const std::string& path_;
  const safetensors::SafetensorsReader& reader_;
  const SavedTensor& tensor_;
  const safetensors::SafetensorsEntry* entry_ = nullptr;
  std::vector<std::byte>& block_;
  int64_t loaded_ = -1;  // the block in block_
  int64_t bytes_read_ = 0;
};

// Readers that take every file of tensors in a folder, as PyTorch's does, would read it.
void refuse_strangers(const std::string& folder, const Manifest& manifest) {
  std::set<std::string_view> own;
  for (const SavedFile& file : manifest.files) own.insert(file.name);
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors") || own.count(name) != 0) continue;
    throw CheckpointError(
        fmt::format("{}/{}: the file is not in the checkpoint's manifest, so another save wrote "
                    "it: remove it from the folder",
                    folder, name));
  }
}

}  // namespace

struct CheckpointReader::OpenFile {
  explicit OpenFile(const std::string& name) : path(name), reader(name) {}
  std::string path;
  safetensors::SafetensorsReader reader;
};

CheckpointReader::CheckpointReader(std::string folder) : folder_(std::move(folder)) {
  const std::string path = folder_ + "/manifest.json";
  manifest_ = parse_manifest(path, manifest_text(path));
  refuse_strangers(folder_, manifest_);
  for (const SavedFile& file : manifest_.files) {
    for (const SavedTensor& tensor : file.tensors) places_[tensor.name].push_back({&file, &tensor});
  }
}

CheckpointReader::~CheckpointReader() = default;

const SavedTensor* CheckpointReader::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second.front().tensor;
}

void CheckpointReader::expect_only(const std::set<std::string>& names) const {
  for (const auto& [name, places] : places_) {
    if (names.count(std::string(name)) != 0) continue;
    throw CheckpointError(
        fmt::format("{}: the checkpoint's tensor '{}' is not in this job: a job with another model "
                    "or optimizer saved the checkpoint",
                    folder_, name));
  }
}

void CheckpointReader::read(const safetensors::TensorPiece& piece) {
  if (piece.size() == 0) return;
  const SavedTensor* saved = find(piece.name);
  if (saved == nullptr) {
    throw CheckpointError(
        fmt::format("{}: the checkpoint has no tensor '{}'", folder_, piece.name));
  }
  if (saved->shape != piece.shape || saved->dtype != piece.dtype) {
    throw CheckpointError(fmt::format(
        "{}: tensor '{}' is {} [{}] in the checkpoint, but {} [{}] in this job", folder_,
        piece.name, safetensors::safetensors_name_of(saved->dtype), fmt::join(saved->shape, ", "),
        safetensors::safetensors_name_of(piece.dtype), fmt::join(piece.shape, ", ")));
  }
  for (const safetensors::Rectangle& rectangle : safetensors::rectangles_of(piece)) {
    read_rectangle(piece, rectangle.box, piece.data + rectangle.offset * bytes_of(piece.dtype));
  }
}

void CheckpointReader::read_rectangle(const safetensors::TensorPiece& piece, const model::Box& box,
                                      std::byte* to) {
  int64_t found = 0;
  for (const Place& place : places_.at(piece.name)) {
    const model::Box part = meeting_of(box, box_of(*place.tensor));
    if (part.rows() <= 0 || part.cols() <= 0) continue;
    copy(place, part, box, to);
    found += part.size();
  }
  SMP_CHECK_EQ(found, box.size());  // parse_manifest() saw to it
}

CheckpointReader::OpenFile& CheckpointReader::open(const Place& place) {
  std::unique_ptr<OpenFile>& file = open_[place.file];
  if (file) return *file;
  const std::string path = folder_ + "/" + place.file->name;
  const std::string words = words_of(*place.tensor);
  if (!std::filesystem::exists(path)) {
    throw CheckpointError(fmt::format("{}: the file is missing; it holds {}", path, words));
  }
  try {
    file = std::make_unique<OpenFile>(path);
  } catch (const safetensors::SafetensorsError& error) {
    throw CheckpointError(fmt::format("{}; it holds {}", error.what(), words));
  }
  return *file;
}

// `part` lies both in the stored rectangle and in `box`, whose rows follow each other at `to`.
void CheckpointReader::copy(const Place& place, const model::Box& part, const model::Box& box,
                            std::byte* to) {
  if (open_.size() >= kMostOpenFiles && open_.count(place.file) == 0) open_.clear();
  const OpenFile& file = open(place);
  CheckedBytes bytes(file.path, file.reader, *place.tensor, block_);
  const model::Box stored = box_of(*place.tensor);
  const int64_t element = bytes_of(place.tensor->dtype);
  // Whole rows of both follow each other: one run of bytes.
  const bool joined = part.cols() == stored.cols() && part.cols() == box.cols();
  const int64_t runs = joined ? 1 : part.rows();
  const auto place_in = [&](const model::Box& outer, int64_t row) {
    return ((row - outer.row_begin) * outer.cols() + part.col_begin - outer.col_begin) * element;
  };
  for (int64_t run = 0; run < runs; ++run) {
    const int64_t row = part.row_begin + run;
    bytes.read(place_in(stored, row), part.size() / runs * element, to + place_in(box, row));
  }
  bytes_read_ += bytes.bytes_read();
}

}  // namespace smp::checkpoint
