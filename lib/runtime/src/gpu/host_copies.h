#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace smp::gpu {

class Gpu;

// Tensors as bytes in host memory, for files. A GPU tensor has a host copy, which lives as long as
// this object; a CPU tensor is used in place. Used by the rank's own thread.
class HostCopies {
 public:
  explicit HostCopies(const Gpu* gpu) : gpu_(gpu) {}  // null: there is no GPU

  // Equal tensors give the same bytes. The tensor must outlive this object.
  std::byte* bytes_of(const at::Tensor& tensor);

  void fetch() const;  // copies from the GPU
  void store() const;  // copies to the GPU

 private:
  struct Pair {
    at::Tensor there, here;
  };
  const Gpu* gpu_;
  std::vector<Pair> pairs_;
};

}  // namespace smp::gpu
