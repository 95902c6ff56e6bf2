#include <stdexcept>

#include "cuda/nccl_library.h"

namespace smp::cuda {

std::unique_ptr<gpu::DeviceCollectivesLibrary> open_nccl(c10::DeviceIndex /*gpu*/) {
  throw std::runtime_error(
      "libsmp_cuda.so was built without NCCL, because nccl.h was missing: install NCCL and build "
      "again, or set parallel.data_collectives: host");
}

}  // namespace smp::cuda
