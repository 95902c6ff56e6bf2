#include "cuda/nccl_collectives.h"

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

namespace smp::cuda {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kLeaving{10};  // limit for a regular end, then it is aborted
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

ncclRedOp_t reduction_of(comm::ReduceOp op) {
  switch (op) {
    case comm::ReduceOp::kSum: return ncclSum;
    case comm::ReduceOp::kMax: return ncclMax;
    case comm::ReduceOp::kMin: return ncclMin;
    case comm::ReduceOp::kProduct: return ncclProd;
    case comm::ReduceOp::kAverage: return ncclAvg;
  }
  throw std::logic_error("a reduction that NCCL does not know");
}

}  // namespace

NcclCollectives::NcclCollectives(const NcclFunctions& functions, const ncclUniqueId& id, int rank,
                                 int size)
    : functions_(functions), size_(size) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(functions_.init_rank(&comm_, size, id, rank, &config), "joining a group");
}

NcclCollectives::~NcclCollectives() {
  if (comm_ == nullptr) return;
  const auto until = steady_clock::now() + kLeaving;
  ncclResult_t result = functions_.finalize(comm_);
  while (result == ncclInProgress && steady_clock::now() < until) {
    std::this_thread::sleep_for(kNap);
    result = state();
  }
  if (result == ncclSuccess) {
    functions_.destroy(comm_);
  } else {
    functions_.abort(comm_);
  }
}

std::string NcclCollectives::text_of(ncclResult_t result) {
  const char* const more = functions_.last_error(comm_);
  std::string text = functions_.error_text(result);
  if (more != nullptr && *more != 0) text += std::string(" (") + more + ")";
  return text;
}

void NcclCollectives::check(ncclResult_t result, const char* what) {
  asked_for_ = what;
  if (result != ncclSuccess && result != ncclInProgress)
    throw std::runtime_error(std::string("NCCL: ") + what + " failed: " + text_of(result));
}

ncclResult_t NcclCollectives::state() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = functions_.async_error(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

bool NcclCollectives::is_ready() {
  const ncclResult_t now = state();
  check(now, asked_for_);
  return now == ncclSuccess;
}

device::CopyPtr NcclCollectives::until_now() { return stream_.until_now(); }

void NcclCollectives::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                 comm::ReduceOp op) {
  stream_.follow_current();
  check(functions_.all_reduce(in, out, static_cast<size_t>(count), type_of(dtype), reduction_of(op),
                              comm_, nccl_stream()),
        "an all_reduce");
}

void NcclCollectives::all_gather(const void* in, void* out, int64_t count, DType dtype) {
  stream_.follow_current();
  check(functions_.all_gather(in, out, static_cast<size_t>(count), type_of(dtype), comm_,
                              nccl_stream()),
        "an all_gather");
}

void NcclCollectives::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                     comm::ReduceOp op) {
  stream_.follow_current();
  check(functions_.reduce_scatter(in, out, static_cast<size_t>(count / size_), type_of(dtype),
                                  reduction_of(op), comm_, nccl_stream()),
        "a reduce_scatter");
}

void NcclCollectives::broadcast(void* buffer, int64_t count, DType dtype, int root) {
  stream_.follow_current();
  check(functions_.broadcast(buffer, buffer, static_cast<size_t>(count), type_of(dtype), root,
                             comm_, nccl_stream()),
        "a broadcast");
}

std::string NcclCollectives::error() {
  const ncclResult_t now = state();
  return now == ncclSuccess || now == ncclInProgress ? "" : text_of(now);
}

void NcclCollectives::abort() {
  if (comm_ != nullptr) functions_.abort(std::exchange(comm_, nullptr));
}

}  // namespace smp::cuda
