#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/runinfo/training_record.h"

// manifest.json of a checkpoint: the training that the checkpoint belongs to, the file of each
// rectangle of each tensor, and the hashes of their bytes. It is written last and atomically, so a
// folder that has a manifest is a whole checkpoint. Plain data, no torch.
namespace smp::checkpoint {

// A checkpoint that is damaged, or a file that is not a checkpoint. what() names the file, and the
// tensor if there is one.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Data are hashed in blocks of this many bytes, the last one shorter. A reader of a part of a
// tensor reads and checks only the blocks of that part.
inline constexpr int64_t kHashBlockBytes = 1 << 20;

// A rectangle of a tensor, stored as a tensor of its own.
struct SavedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;    // of the whole tensor: one or two dims
  std::vector<int64_t> offsets;  // where the rectangle begins in it
  std::vector<int64_t> sizes;    // of the rectangle
  std::vector<uint64_t> hashes;  // XXH64 of each block of its data

  int64_t elements() const;
  int64_t bytes() const { return elements() * bytes_of(dtype); }
};

struct SavedFile {
  std::string name;  // within the checkpoint's folder
  int64_t bytes = 0;
  std::vector<SavedTensor> tensors;
};

struct Manifest {
  int64_t step = 0;                  // steps done
  runinfo::TrainingRecord training;  // of the whole checkpoint; a part has none
  std::vector<SavedFile> files;
};

std::string to_json(const Manifest& manifest);  // with a hash of its own content

// Throws CheckpointError, with the path, if the text is no manifest of this version, was changed
// after it was written, or contradicts itself. Rectangles must lie within their tensor, agree in
// its shape and type, not overlap, and cover all of it.
Manifest parse_manifest(const std::string& path, const std::string& text);

// The manifest of one rank's own files: the same text, whose tensors need not be whole.
Manifest parse_manifest_part(const std::string& path, const std::string& text);

}  // namespace smp::checkpoint
