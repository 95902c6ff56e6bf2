#include "cuda/nccl_collectives.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "cuda/device_copies.h"

namespace smp::cuda {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kLeaving{10};  // in good order; then it is aborted
constexpr std::chrono::microseconds kNap{20};

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ncclFloat32;
    case DType::kF64: return ncclFloat64;
    case DType::kBF16: return ncclBfloat16;
    case DType::kF16: return ncclFloat16;
    case DType::kI32: return ncclInt32;
    case DType::kI64: return ncclInt64;
    case DType::kU8: return ncclUint8;
  }
  throw std::logic_error("a type that NCCL does not know");
}

ncclRedOp_t reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return ncclSum;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kMin: return ncclMin;
    case ReduceOp::kProduct: return ncclProd;
    case ReduceOp::kAverage: return ncclAvg;
  }
  throw std::logic_error("a reduction that NCCL does not know");
}

}  // namespace

NcclCollectives::NcclCollectives(const NcclFunctions& functions, const ncclUniqueId& id, int rank,
                                 int size)
    : functions_(functions),
      size_(size),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = functions_.init_rank(&comm_, size, id, rank, &config);
  if (result != ncclInProgress) check(result, "to begin a group");
}

NcclCollectives::~NcclCollectives() {
  if (has_ended_.load()) return;
  const auto until = steady_clock::now() + kLeaving;
  ncclResult_t result = functions_.finalize(comm_);
  while (result == ncclInProgress && steady_clock::now() < until) {
    std::this_thread::sleep_for(kNap);
    if (functions_.async_error(comm_, &result) != ncclSuccess) break;
  }
  if (result == ncclSuccess) {
    functions_.destroy(comm_);
  } else {
    abort();
  }
}

std::string NcclCollectives::text_of(ncclResult_t result) {
  const char* const more = functions_.last_error(comm_);
  std::string text = functions_.error_text(result);
  if (more != nullptr && *more != 0) text += std::string(" (") + more + ")";
  return text;
}

void NcclCollectives::check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw std::runtime_error(std::string("NCCL refuses ") + what + ": " + text_of(result));
}

bool NcclCollectives::is_ready() {
  ncclResult_t state = ncclSuccess;
  check(functions_.async_error(comm_, &state), "to say how far it is");
  if (state == ncclInProgress) return false;
  check(state, "to bring a group together");
  return true;
}

// Another thread may abort meanwhile.
ncclResult_t NcclCollectives::settled(ncclResult_t result) {
  while (result == ncclInProgress && !has_ended_.load()) {
    std::this_thread::sleep_for(kNap);
    const ncclResult_t asked = functions_.async_error(comm_, &result);
    if (asked != ncclSuccess) return asked;
  }
  return result;
}

template <class Call>
CopyPtr NcclCollectives::call(const char* what, const Call& call) {
  if (has_ended_.load()) throw std::runtime_error("NCCL's group was aborted");
  follow_current(stream_.stream());
  check(settled(call(stream_.stream())), what);
  return copy_until_now(stream_.stream());
}

CopyPtr NcclCollectives::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                    ReduceOp op) {
  return call("an all_reduce", [&](cudaStream_t stream) {
    return functions_.all_reduce(in, out, static_cast<size_t>(count), type_of(dtype),
                                 reduction_of(op), comm_, stream);
  });
}

CopyPtr NcclCollectives::all_gather(const void* in, void* out, int64_t count, DType dtype) {
  return call("an all_gather", [&](cudaStream_t stream) {
    return functions_.all_gather(in, out, static_cast<size_t>(count), type_of(dtype), comm_,
                                 stream);
  });
}

CopyPtr NcclCollectives::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                        ReduceOp op) {
  return call("a reduce_scatter", [&](cudaStream_t stream) {
    return functions_.reduce_scatter(in, out, static_cast<size_t>(count / size_), type_of(dtype),
                                     reduction_of(op), comm_, stream);
  });
}

CopyPtr NcclCollectives::broadcast(void* buffer, int64_t count, DType dtype, int root) {
  return call("a broadcast", [&](cudaStream_t stream) {
    return functions_.broadcast(buffer, buffer, static_cast<size_t>(count), type_of(dtype), root,
                                comm_, stream);
  });
}

std::string NcclCollectives::error() {
  std::lock_guard guard(ending_);
  if (has_ended_.load()) return "";
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = functions_.async_error(comm_, &state);
  if (asked != ncclSuccess) return text_of(asked);
  return state == ncclSuccess || state == ncclInProgress ? "" : text_of(state);
}

void NcclCollectives::abort() {
  std::lock_guard guard(ending_);
  if (has_ended_.exchange(true)) return;
  functions_.abort(comm_);
}

}  // namespace smp::cuda
