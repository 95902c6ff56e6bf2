#include "record/cache_flushes.h"

#include <fmt/format.h>

#include <utility>

#include "gpu/gpu.h"
#include "smp/plan/layout/layout.h"
#include "smp/runtime/record/run_report.h"

namespace smp::record {
namespace {

// Bytes of this rank that shrink with the shard degree: optimizer state, and this rank's parts of
// sharded gradients and weights. The buffers for whole gradients and weights do not shrink.
int64_t sharded_bytes(const Plan& plan, int64_t rank) {
  const layout::RankLayout layout = layout::rank_layout(plan, rank);
  const ledger::CategoryBytes planned = bytes_by_category(prediction_for(plan, layout.coord));
  int64_t bytes = planned[static_cast<size_t>(MemoryCategory::kOptimizer)];
  const int64_t weight_bytes = bytes_of(compute_dtype(plan));
  if (layout.shards_gradients()) {
    bytes += layout.optimizer_elements * (weight_bytes == 2 ? 4 : weight_bytes);
  }
  if (layout.shards_weights()) bytes += layout.optimizer_elements * weight_bytes;
  return bytes;
}

}  // namespace

CacheFlushes::CacheFlushes(const Plan& plan, const gpu::Gpu& gpu, int64_t rank, std::FILE* out)
    : plan_(plan), gpu_(gpu), rank_(rank), out_(out), before_(gpu.cache_flushes()) {}

int64_t CacheFlushes::of_step(int64_t step) {
  const int64_t now = gpu_.cache_flushes(), flushes = now - std::exchange(before_, now);
  if (flushes > 0 && !std::exchange(has_told_, true) && out_ != nullptr) {
    std::fputs(cache_flush_warning(plan_, rank_, step, flushes).c_str(), out_);
    std::fflush(out_);
  }
  return flushes;
}

std::string cache_flush_warning(const Plan& plan, int64_t rank, int64_t step, int64_t flushes) {
  const int64_t z = plan.degrees.shard, d = plan.degrees.data();
  int64_t next = z + 1;
  while (next <= d && d % next != 0) ++next;
  const std::string text = fmt::format(
      "warning: rank {}, step {}: the GPU ran out of memory {} time{}, so the allocator freed its "
      "cache and delayed the step; ",
      rank, step, flushes, flushes == 1 ? "" : "s");
  if (next > d) {
    return text + fmt::format(
                      "the state is sharded over all {} data-parallel ranks already: lower "
                      "training.micro_batch, or raise another parallel degree\n",
                      d);
  }
  const int64_t held = sharded_bytes(plan, rank);
  return text + fmt::format(
                    "parallel.sharded_data_parallel_degree: {} instead of {} would free about {} "
                    "bytes of this rank\n",
                    next, z, held - held * z / next);
}

}  // namespace smp::record
