#include "cuda/nccl_library.h"

#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "cuda/nccl_collectives.h"
#include "cuda/nccl_functions.h"

namespace smp::cuda {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(gpu::DeviceGroupId));

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw std::runtime_error(std::string("libnccl.so.2 has no function ") + name);
}

class NcclLibrary final : public gpu::DeviceCollectivesLibrary {
 public:
  explicit NcclLibrary(c10::DeviceIndex gpu) : gpu_(gpu) {
    void* const library =
        dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // never closed: its threads may still run
    if (library == nullptr)
      throw std::runtime_error(
          std::string(
              "libnccl.so.2 cannot be loaded (parallel.data_collectives: host needs no NCCL): ") +
          dlerror());
    find(library, "ncclGetUniqueId", functions_.get_unique_id);
    find(library, "ncclCommInitRankConfig", functions_.init_rank);
    find(library, "ncclCommGetAsyncError", functions_.async_error);
    find(library, "ncclCommFinalize", functions_.finalize);
    find(library, "ncclCommDestroy", functions_.destroy);
    find(library, "ncclCommAbort", functions_.abort);
    find(library, "ncclGetErrorString", functions_.error_text);
    find(library, "ncclGetLastError", functions_.last_error);
    find(library, "ncclAllReduce", functions_.all_reduce);
    find(library, "ncclAllGather", functions_.all_gather);
    find(library, "ncclReduceScatter", functions_.reduce_scatter);
    find(library, "ncclBroadcast", functions_.broadcast);
  }

  gpu::DeviceGroupId fresh_id() override {
    ncclUniqueId drawn;
    const ncclResult_t result = functions_.get_unique_id(&drawn);
    if (result != ncclSuccess)
      throw std::runtime_error(std::string("NCCL: creating a group failed: ") +
                               functions_.error_text(result));
    gpu::DeviceGroupId id;
    std::memcpy(id.data(), drawn.internal, id.size());
    return id;
  }

  std::unique_ptr<gpu::DeviceCollectives> join(const gpu::DeviceGroupId& id, int rank,
                                               int size) override {
    ncclUniqueId drawn;
    std::memcpy(drawn.internal, id.data(), id.size());
    return std::make_unique<NcclCollectives>(functions_, drawn, rank, size);
  }

  // A new thread starts with GPU 0 as its current GPU, and would allocate memory there.
  void use_on_this_thread() override { c10::cuda::set_device(gpu_); }

 private:
  const c10::DeviceIndex gpu_;
  NcclFunctions functions_{};
};

}  // namespace

std::unique_ptr<gpu::DeviceCollectivesLibrary> open_nccl(c10::DeviceIndex gpu) {
  return std::make_unique<NcclLibrary>(gpu);
}

}  // namespace smp::cuda
