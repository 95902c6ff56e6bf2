#pragma once

#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <mutex>
#include <string>

#include "cuda/nccl_functions.h"
#include "device_collectives.h"

namespace smp::cuda {

// One communicator of NCCL, which never blocks: what it says it is still at is asked for again.
class NcclCollectives final : public DeviceCollectives {
 public:
  NcclCollectives(const NcclFunctions& functions, const ncclUniqueId& id, int rank, int size);
  ~NcclCollectives() override;

  bool is_ready() override;
  CopyPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op) override;
  CopyPtr all_gather(const void* in, void* out, int64_t count, DType dtype) override;
  CopyPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                         ReduceOp op) override;
  CopyPtr broadcast(void* buffer, int64_t count, DType dtype, int root) override;
  std::string error() override;
  void abort() override;

 private:
  template <class Call>
  CopyPtr call(const char* what, const Call& call);
  ncclResult_t settled(ncclResult_t result);
  void check(ncclResult_t result, const char* what);
  std::string text_of(ncclResult_t result);

  const NcclFunctions& functions_;
  const int size_;
  const c10::cuda::CUDAStream stream_;
  ncclComm_t comm_ = nullptr;
  std::mutex ending_;
  std::atomic<bool> has_ended_{false};
};

}  // namespace smp::cuda
