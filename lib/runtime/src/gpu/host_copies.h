#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace smp::gpu {

class Gpu;

// Tensors as bytes of the host, for files: a GPU's have a copy here, others are where they are.
// Copies live as long as this object. Used by the rank's own thread.
class HostCopies {
 public:
  explicit HostCopies(const Gpu* gpu) : gpu_(gpu) {}  // null: there is no GPU

  // The same for the same memory. The tensor must live on.
  std::byte* bytes_of(const at::Tensor& tensor);

  void fetch() const;  // what the GPU has comes here
  void store() const;  // and goes back

 private:
  struct Pair {
    at::Tensor there, here;
  };
  const Gpu* gpu_;
  std::vector<Pair> pairs_;
};

}  // namespace smp::gpu
