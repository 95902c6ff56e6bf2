#pragma once

#include <string>

#include "cuda/cuda_runtime.h"
#include "cuda/nccl_functions.h"
#include "gpu/device_collectives.h"

namespace smp::cuda {

// One non-blocking NCCL communicator. A call that NCCL reports as in progress is queried again.
class NcclCollectives final : public gpu::DeviceCollectives {
 public:
  NcclCollectives(const NcclFunctions& functions, const ncclUniqueId& id, int rank, int size);
  ~NcclCollectives() override;

  bool is_ready() override;
  device::CopyPtr until_now() override;
  void all_reduce(const void* in, void* out, int64_t count, DType dtype,
                  comm::ReduceOp op) override;
  void all_gather(const void* in, void* out, int64_t count, DType dtype) override;
  void reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                      comm::ReduceOp op) override;
  void broadcast(void* buffer, int64_t count, DType dtype, int root) override;
  std::string error() override;
  void abort() override;

 private:
  ncclResult_t state();
  // Throws if the call failed. `what`: the call, as in "joining a group"; is_ready() reports it.
  void check(ncclResult_t result, const char* what);
  std::string text_of(ncclResult_t result);
  cudaStream_t nccl_stream() const { return static_cast<cudaStream_t>(stream_.get()); }

  const NcclFunctions& functions_;
  const int size_;
  const device::CudaStream stream_{cuda_runtime()};
  ncclComm_t comm_ = nullptr;   // null: aborted
  const char* asked_for_ = "";  // the last call
};

}  // namespace smp::cuda
