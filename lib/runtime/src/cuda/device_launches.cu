#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/device_block.cuh"
#include "cuda/device_runner.h"
#include "cuda/expert_launches_of.h"
#include "cuda/flat_launches_of.h"
#include "cuda/launches_of.h"

// The launches on GPUs, each on the thread's current stream.
namespace smp::cuda {
namespace {

// Enough blocks for all multiprocessors of any GPU, few enough to start without delay.
constexpr int64_t kMostBlocks = 1 << 14;
static_assert(DeviceRunner::kThreadsOfBlock == kThreads);

template <bool kOfWarps, typename Body>
__global__ void __launch_bounds__(kThreads) kernel(const Body body) {
  DeviceBlock block(kOfWarps);
  body(block);
}

template <bool kOfWarps, typename Body>
void launch(int64_t blocks, const Body& body) {
  if (blocks == 0) return;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  kernel<kOfWarps>
      <<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kThreads, 0, stream>>>(body);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA: launching a kernel failed: ") +
                             cudaGetErrorString(error));
  }
}

}  // namespace

template <typename Body>
void DeviceRunner::run(int64_t blocks, const Body& body) const {
  launch<false>(blocks, body);
}

template <typename Body>
void DeviceRunner::run_warps(int64_t warps, const Body& body) const {
  launch<true>((warps + kWarps - 1) / kWarps, body);
}

#define SMP_INSTANTIATE(T, R)                                                                     \
  template void Launches<DeviceRunner, T>::unpack_heads(const kernels::AttentionShape&, const T*, \
                                                        const HeadTensor<T, R>&) const;           \
  template void Launches<DeviceRunner, T>::pack_gradients(                                        \
      const kernels::AttentionShape&, const HeadTensor<T, R>&, kernels::Wide<T>*,                 \
      kernels::Wide<T>*, T*, kernels::Wide<T>*) const;

template class Launches<DeviceRunner, float>;
template class Launches<DeviceRunner, double>;
template class Launches<DeviceRunner, c10::BFloat16>;
template class Launches<DeviceRunner, c10::Half>;
SMP_INSTANTIATE(float, float)
SMP_INSTANTIATE(double, double)
SMP_INSTANTIATE(c10::BFloat16, float)
SMP_INSTANTIATE(c10::BFloat16, c10::BFloat16)
SMP_INSTANTIATE(c10::Half, float)
SMP_INSTANTIATE(c10::Half, c10::Half)
template class RouterLaunches<DeviceRunner, float>;
template class RouterLaunches<DeviceRunner, double>;
template class ExpertLaunches<DeviceRunner, float>;
template class ExpertLaunches<DeviceRunner, double>;
template class ExpertLaunches<DeviceRunner, c10::BFloat16>;
template class ExpertLaunches<DeviceRunner, c10::Half>;
template class FlatLaunches<DeviceRunner, float>;
template class FlatLaunches<DeviceRunner, double>;
#undef SMP_INSTANTIATE

}  // namespace smp::cuda
