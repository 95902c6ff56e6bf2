#include "smp/plan/schedule/pass_order.h"

#include <algorithm>
#include <utility>

#include "smp/plan/base/check.h"

namespace smp::schedule {
namespace {

class Order {
 public:
  void forward(int64_t microbatch, int64_t chunk = 0) {
    add(PassKind::kForward, microbatch, chunk);
  }
  void backward(int64_t microbatch, int64_t chunk = 0) {
    add(PassKind::kBackward, microbatch, chunk);
  }
  void weight(int64_t microbatch, int64_t chunk = 0) { add(PassKind::kWeight, microbatch, chunk); }
  void reserve(int64_t passes) { passes_.reserve(static_cast<size_t>(passes)); }
  std::vector<Pass> take() { return std::move(passes_); }

 private:
  void add(PassKind kind, int64_t microbatch, int64_t chunk) {
    passes_.push_back({kind, static_cast<int16_t>(chunk), static_cast<int32_t>(microbatch)});
  }
  std::vector<Pass> passes_;
};

// GPipe (Huang et al. 2019): all forward, then all backward, in rounds of the live bound.
std::vector<Pass> simple_order(const ScheduleShape& shape, int64_t live) {
  Order order;
  order.reserve(2 * shape.microbatches);
  for (int64_t begin = 0; begin < shape.microbatches; begin += live) {
    const int64_t end = std::min(begin + live, shape.microbatches);
    for (int64_t i = begin; i < end; ++i) order.forward(i);
    for (int64_t i = begin; i < end; ++i) order.backward(i);
  }
  return order.take();
}

// 1F1B (PipeDream-Flush, Narayanan et al. 2021): forward until `live` microbatches are live, then
// backward and forward in turn, so that none is kept longer than needed.
//
// With chunks (Megatron-LM, schedules.py) the microbatches go through in groups of p: a group
// passes all chunks of a stage before the next group begins, backward through the chunks from the
// last to the first.
std::vector<Pass> one_forward_one_backward_order(const ScheduleShape& shape, int64_t live) {
  const int64_t chunks = shape.chunks();
  const int64_t group = chunks == 1 ? 1 : shape.stages;
  const int64_t units = shape.microbatches * chunks;
  const auto microbatch = [&](int64_t unit) {
    return unit / (group * chunks) * group + unit % group;
  };
  const auto chunk = [&](int64_t unit) { return unit % (group * chunks) / group; };
  Order order;
  order.reserve(2 * units);
  for (int64_t i = 0; i < live; ++i) order.forward(microbatch(i), chunk(i));
  for (int64_t i = 0; i < units; ++i) {
    order.backward(microbatch(i), chunks - 1 - chunk(i));
    if (i + live < units) order.forward(microbatch(i + live), chunk(i + live));
  }
  return order.take();
}

// ZB-H1 (Qi et al. 2023, section 2.1): 1F1B, where a stage defers weight gradients for as long as
// it holds fewer microbatches than 1F1B's first stage. Deferred weight passes fill the wait for the
// last backwards.
std::vector<Pass> zb_h1_order(const ScheduleShape& shape, int64_t stage, int64_t held) {
  const int64_t m = shape.microbatches;
  Order order;
  order.reserve(3 * m);
  int64_t forwards = std::min(held, shape.stages - stage);
  int64_t weights = 0;
  for (int64_t i = 0; i < forwards; ++i) order.forward(i);
  for (int64_t i = 0; i < m; ++i) {
    order.backward(i);
    const bool full = forwards - weights == held;
    if (full || forwards == m) order.weight(weights++);
    if (forwards < m) order.forward(forwards++);
  }
  while (weights < m) order.weight(weights++);
  return order.take();
}

// ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"; the order that
// torch.distributed.pipelining's ScheduleZBVZeroBubble writes down). Chunk 0 goes down the stages,
// chunk 1 back up, so that stage 0 has both ends of the model. Made for at least 2p - 1
// microbatches; with fewer, those beyond are left out.
std::vector<Pass> zb_v_order(const ScheduleShape& shape, int64_t stage) {
  const int64_t p = shape.stages;
  const int64_t m = shape.microbatches;
  const int64_t all = std::max(m, 2 * p - 1);
  Order order;
  order.reserve(6 * m);
  int64_t forward[2] = {0, 0}, backward[2] = {0, 0}, weight[2] = {0, 0};
  const auto run_forward = [&](int64_t chunk) {
    if (forward[chunk]++ < m) order.forward(forward[chunk] - 1, chunk);
  };
  const auto run_backward = [&](int64_t chunk) {
    if (backward[chunk]++ < m) order.backward(backward[chunk] - 1, chunk);
  };
  const auto run_weight = [&](int64_t chunk) {
    if (weight[chunk]++ < m) order.weight(weight[chunk] - 1, chunk);
  };
  for (int64_t i = 0; i < 2 * (p - stage) - 1; ++i) run_forward(0);
  for (int64_t i = 0; i < stage; ++i) {
    run_forward(1);
    run_forward(0);
  }
  for (int64_t i = 0; i < p - stage; ++i) {
    run_forward(1);
    run_backward(1);
    run_weight(1);
  }
  while (forward[1] < forward[0] || forward[0] < all) {
    if (forward[0] < all) run_forward(0);
    run_backward(0);
    run_weight(0);
    run_forward(1);
    run_backward(1);
    run_weight(1);
  }
  for (int64_t i = 0; i < stage; ++i) {
    run_backward(0);
    run_backward(1);
  }
  for (int64_t i = 0; i < p - stage; ++i) {
    run_backward(0);
    run_weight(0);
  }
  while (weight[1] < backward[1]) run_weight(1);
  while (weight[0] < backward[0]) run_weight(0);
  return order.take();
}

// Evaluation: chunks in the order in which a microbatch comes by. With virtual stages groups of p
// microbatches pass all chunks of a stage in turn; in zb_v those that come back go first.
std::vector<Pass> forward_order(const ScheduleShape& shape, int64_t stage) {
  struct Visit {
    int64_t time, position, microbatch, chunk;
  };
  std::vector<Visit> visits;
  visits.reserve(static_cast<size_t>(shape.microbatches * shape.chunks()));
  for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
    const int64_t position = position_of_chunk(shape, {stage, chunk});
    for (int64_t i = 0; i < shape.microbatches; ++i) {
      const int64_t groups = shape.kind == PipelineKind::kVirtual ? i / shape.stages : 0;
      const int64_t time = i + position + groups * (shape.chunks() - 1) * shape.stages;
      visits.push_back({time, position, i, chunk});
    }
  }
  std::sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
    return a.time != b.time ? a.time < b.time : a.position > b.position;
  });
  Order order;
  order.reserve(static_cast<int64_t>(visits.size()));
  for (const Visit& visit : visits) order.forward(visit.microbatch, visit.chunk);
  return order.take();
}

}  // namespace

int64_t held_units(const ScheduleShape& shape, int64_t stage) {
  if (shape.forward_only) return 1;
  const int64_t p = shape.stages;
  const int64_t m = shape.microbatches;
  const int64_t chunks = shape.chunks();
  const int64_t most = std::min(shape.most_live(), m) * chunks;
  switch (shape.kind) {
    case PipelineKind::kSimple: return most;
    case PipelineKind::kInterleaved: return std::min(most, p - stage);
    case PipelineKind::kVirtual: return std::min(most, 2 * (p - stage - 1) + (chunks - 1) * p + 1);
    case PipelineKind::kZbH1: return std::min(most, p);
    case PipelineKind::kZbV: return std::min(m, 2 * p - stage - 1) + std::min(m, stage + 1);
  }
  check_failed(__FILE__, __LINE__, "unknown schedule");
}

std::vector<Pass> pass_order(const ScheduleShape& shape, int64_t stage) {
  if (shape.forward_only) return forward_order(shape, stage);
  const int64_t held = held_units(shape, stage);
  switch (shape.kind) {
    case PipelineKind::kSimple: return simple_order(shape, held);
    case PipelineKind::kInterleaved:
    case PipelineKind::kVirtual: return one_forward_one_backward_order(shape, held);
    case PipelineKind::kZbH1: return zb_h1_order(shape, stage, held);
    case PipelineKind::kZbV: return zb_v_order(shape, stage);
  }
  check_failed(__FILE__, __LINE__, "unknown schedule");
}

}  // namespace smp::schedule
