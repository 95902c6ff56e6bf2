#include <stdexcept>

#include "cuda/nccl_library.h"

namespace smp::cuda {

std::unique_ptr<gpu::DeviceCollectivesLibrary> open_nccl(c10::DeviceIndex /*gpu*/) {
  throw std::runtime_error(
      "libsmp_cuda.so is built without NCCL: there was no nccl.h (parallel.data_collectives: host "
      "does without)");
}

}  // namespace smp::cuda
