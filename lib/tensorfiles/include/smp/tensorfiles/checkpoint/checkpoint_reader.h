#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "smp/tensorfiles/checkpoint/checkpoint_manifest.h"
#include "smp/tensorfiles/safetensors/safetensors.h"
#include "smp/tensorfiles/safetensors/tensor_piece.h"

// Reads pieces of a whole checkpoint, independent of its writers' layout. Only blocks with wanted
// bytes are read, and each is checked against its hash. One thread at a time.
namespace smp::checkpoint {

class CheckpointReader {
 public:
  // A folder step-<n>. Throws CheckpointError for a missing or broken manifest, and for a file of
  // tensors that it does not name.
  explicit CheckpointReader(std::string folder);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  int64_t step() const { return manifest_.step; }
  const runinfo::TrainingRecord& training() const { return manifest_.training; }

  // One of the rectangles of a tensor, for its shape and type; null when there is no such tensor.
  const SavedTensor* find(std::string_view name) const;

  // Throws CheckpointError if the checkpoint holds a tensor that is none of these.
  void expect_only(const std::set<std::string>& names) const;

  // Fills the piece. Throws CheckpointError, naming file and tensor, for a missing tensor, another
  // shape or type, a missing or torn file, or a wrong hash.
  void read(const safetensors::TensorPiece& piece);

  int64_t bytes_read() const { return bytes_read_; }  // of tensors, so far

 private:
  struct Place {
    const SavedFile* file;
    const SavedTensor* tensor;
  };
  struct OpenFile;

  OpenFile& open(const Place& place);
  void read_rectangle(const safetensors::TensorPiece& piece, const model::Box& box, std::byte* to);
  void copy(const Place& place, const model::Box& part, const model::Box& box, std::byte* to);

  std::string folder_;
  Manifest manifest_;
  std::map<std::string_view, std::vector<Place>> places_;
  std::map<const SavedFile*, std::unique_ptr<OpenFile>> open_;
  std::vector<std::byte> block_;
  int64_t bytes_read_ = 0;
};

}  // namespace smp::checkpoint
