#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smp/plan/files/atomic_file.h"
#include "smp/tensorfiles/checkpoint/checkpoint_manifest.h"
#include "smp/tensorfiles/safetensors/safetensors.h"
#include "smp/tensorfiles/safetensors/tensor_piece.h"

// One rank's part of a checkpoint: its pieces, the host memory that they are copied to, and the
// files that they are written to. The files are safetensors with the offsets of each rectangle in
// DCP_SHARDING_INFO, in the form that torch.distributed.checkpoint.HuggingFaceStorageReader reads.
// In that form a file has a name once, so the k-th rectangle of a tensor lies in the rank's k-th
// file. Not thread-safe, but copy() and write() may be called from different threads one after the
// other.
namespace smp::checkpoint {

class RankShards {
 public:
  // The pieces' memory must outlive this object. The host memory is allocated and touched here, so
  // that a later copy finds it ready.
  RankShards(int64_t rank, const std::vector<safetensors::TensorPiece>& pieces);
  ~RankShards();
  RankShards(const RankShards&) = delete;
  RankShards& operator=(const RankShards&) = delete;

  int64_t bytes() const { return bytes_; }  // of data, and of host memory

  void copy();  // memory to host memory

  // Writes the copies into `folder`, synced, and last part-<rank>.json, which marks them as
  // complete.
  void write(const std::string& folder, int64_t step, files::FileCalls& calls) const;

 private:
  struct Source {
    const std::byte* data = nullptr;
    int64_t at = 0;  // of host memory
    int64_t bytes = 0;
  };
  struct File {
    std::string name;
    std::vector<SavedTensor> tensors;  // in file order, without hashes
    std::string header;
    int64_t begin = 0;  // of its data in host memory
    int64_t bytes = 0;  // of its data
  };

  SavedFile write_file(const std::string& folder, const File& file, files::FileCalls& calls) const;

  int64_t rank_;
  std::vector<File> files_;
  std::vector<Source> sources_;
  int64_t bytes_ = 0;
  std::byte* host_ = nullptr;
};

std::string part_name(int64_t rank);  // "part-00003.json"

}  // namespace smp::checkpoint
