#include "time/pipeline_time.h"

#include <algorithm>
#include <limits>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"

namespace smp::time {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Of a chunk on a stage: its place along the model, and whether what it makes goes to another
// stage.
struct Chunk {
  size_t position = 0;
  bool has_before = false, has_after = false;
  bool sends_forward = false, sends_backward = false;
};

std::vector<Chunk> chunks_of(const schedule::ScheduleShape& shape, int64_t stage) {
  const int64_t all = shape.stages * shape.chunks();
  std::vector<Chunk> chunks;
  for (int64_t i = 0; i < shape.chunks(); ++i) {
    const int64_t position = schedule::position_of_chunk(shape, {stage, i});
    const auto is_elsewhere = [&](int64_t neighbour) {
      return neighbour >= 0 && neighbour < all &&
             schedule::place_of_chunk(shape, neighbour).stage != stage;
    };
    chunks.push_back({.position = static_cast<size_t>(position),
                      .has_before = position > 0,
                      .has_after = position + 1 < all,
                      .sends_forward = is_elsewhere(position + 1),
                      .sends_backward = is_elsewhere(position - 1)});
  }
  return chunks;
}

schedule::ActionKind action_of(schedule::PassKind kind) {
  return kind == schedule::PassKind::kForward    ? schedule::ActionKind::kForward
         : kind == schedule::PassKind::kBackward ? schedule::ActionKind::kBackward
                                                 : schedule::ActionKind::kWeight;
}

class Simulation {
 public:
  Simulation(const PipelineCosts& costs, const PipelinePasses& passes, PipelineEvents events)
      : costs_(costs),
        passes_(passes),
        with_events_(events == PipelineEvents::kAll),
        stages_(costs.size()),
        positions_(costs.size() * costs.front().size()) {
    const auto slots = static_cast<size_t>(passes.shape.microbatches) * positions_;
    forward_.assign(slots, kNever);
    backward_.assign(slots, kNever);
    for (size_t i = 0; i < stages_.size(); ++i) {
      stages_[i].chunks = chunks_of(passes.shape, static_cast<int64_t>(i));
    }
  }

  PipelineTime run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < stages_.size(); ++stage) moved |= advance(stage);
    }
    PipelineTime time;
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      SMP_CHECK_EQ(stages_[stage].next, passes_.of_stage[stage].size());
      time.makespan_s = std::max(time.makespan_s, stages_[stage].clock);
    }
    for (const Stage& stage : stages_) time.idle_s.push_back(time.makespan_s - stage.busy);
    time.events = std::move(events_);
    return time;
  }

 private:
  struct Stage {
    double clock = 0, busy = 0;
    size_t next = 0;
    std::vector<Chunk> chunks;
  };

  // Runs the stage's passes until one whose data have not been made yet. Whether any ran.
  bool advance(size_t index) {
    Stage& stage = stages_[index];
    const std::vector<schedule::Pass>& passes = passes_.of_stage[index];
    const size_t first = stage.next;
    for (; stage.next < passes.size(); ++stage.next) {
      const schedule::Pass& pass = passes[stage.next];
      const auto of_chunk = static_cast<size_t>(pass.chunk);
      const ChunkCost& cost = costs_[index][of_chunk];
      const Chunk& chunk = stage.chunks[of_chunk];
      const size_t slot = static_cast<size_t>(pass.microbatch) * positions_ + chunk.position;
      double begin = stage.clock;
      double seconds = cost.weight_s;
      switch (pass.kind) {
        case schedule::PassKind::kForward:
          if (chunk.has_before) begin = std::max(begin, forward_[slot - 1]);
          if (begin == kNever) return stage.next > first;
          seconds = cost.forward_s;
          forward_[slot] = begin + seconds;
          if (chunk.sends_forward) forward_[slot] += cost.send_activation_s;
          break;
        case schedule::PassKind::kBackward:
          if (chunk.has_after) begin = std::max(begin, backward_[slot + 1]);
          if (begin == kNever) return stage.next > first;
          seconds = cost.backward_s;
          backward_[slot] = begin + seconds;
          if (chunk.sends_backward) backward_[slot] += cost.send_gradient_s;
          break;
        case schedule::PassKind::kWeight: break;
      }
      if (with_events_) {
        events_.push_back({static_cast<int64_t>(index), pass.chunk, pass.microbatch,
                           action_of(pass.kind), begin, begin + seconds});
      }
      stage.clock = begin + seconds;
      stage.busy += seconds;
    }
    return stage.next > first;
  }

  const PipelineCosts& costs_;
  const PipelinePasses& passes_;
  const bool with_events_;
  std::vector<Stage> stages_;
  const size_t positions_;  // one for each chunk of the model
  // When what a chunk makes of a microbatch has arrived where it is used, [microbatch, position].
  std::vector<double> forward_, backward_;
  std::vector<PipelineEvent> events_;
};

}  // namespace

schedule::Schedule condensed_schedule(const schedule::ScheduleShape& shape) {
  schedule::ScheduleParameters parameters;
  parameters.shape = shape;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    auto& chunks = parameters.layers.emplace_back();
    for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
      chunks.push_back({schedule::position_of_chunk(shape, {stage, chunk})});
    }
  }
  return schedule::make_schedule(parameters);
}

PipelinePasses pipeline_passes(const schedule::ScheduleShape& shape) {
  if (const auto why = schedule::schedule_refused(shape)) throw ConfigError("schedule: " + *why);
  PipelinePasses passes{shape, {}};
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    passes.of_stage.push_back(schedule::pass_order(shape, stage));
  }
  return passes;
}

PipelineTime simulate_pipeline(const PipelineCosts& costs, const PipelinePasses& passes,
                               PipelineEvents events) {
  SMP_CHECK_EQ(static_cast<int64_t>(costs.size()), passes.shape.stages);
  return Simulation(costs, passes, events).run();
}

}  // namespace smp::time
