#include "pipeline_time.h"

#include <algorithm>
#include <limits>

#include "smp/plan/check.h"

namespace smp {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Simulation {
 public:
  Simulation(const PipelineCosts& costs, const Schedule& schedule)
      : costs_(costs),
        schedule_(schedule),
        clock_(costs.size()),
        busy_(costs.size()),
        next_(costs.size()),
        layers_(costs.size() * costs.front().size()),
        outputs_(static_cast<size_t>(2 * schedule.microbatches) * layers_, kNever) {}

  PipelineTime run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t stage = 0; stage < costs_.size(); ++stage) {
        while (next_[stage] < actions(stage).size() && take(stage, actions(stage)[next_[stage]])) {
          ++next_[stage];
          moved = true;
        }
      }
    }
    PipelineTime time;
    for (size_t stage = 0; stage < costs_.size(); ++stage) {
      SMP_CHECK_EQ(next_[stage], actions(stage).size());
      time.makespan_s = std::max(time.makespan_s, clock_[stage]);
    }
    for (const double busy : busy_) time.idle_s.push_back(time.makespan_s - busy);
    time.events = std::move(events_);
    return time;
  }

 private:
  const std::vector<Action>& actions(size_t stage) const { return schedule_.actions[stage]; }
  const ChunkCost& cost(size_t stage, const Action& action) const {
    return costs_[stage][static_cast<size_t>(action.chunk)];
  }

  // When the output of a pass through a layer has arrived where it is used.
  double& output(const Action& action, bool forward, int64_t layer) {
    const auto half = forward ? size_t{0} : layers_;
    return outputs_[static_cast<size_t>(action.microbatch) * 2 * layers_ + half +
                    static_cast<size_t>(layer)];
  }

  // Passes the microbatch through the chunk, or says that its data have not been sent yet.
  bool pass(size_t stage, const Action& action) {
    const ChunkCost& costs = cost(stage, action);
    const bool forward = action.kind == ActionKind::kForward;
    double begin = clock_[stage];
    double seconds = costs.weight_s;
    if (action.kind != ActionKind::kWeight) {
      const int64_t before = action.layer + (forward ? -1 : 1);
      const bool has_input = before >= 0 && before < static_cast<int64_t>(layers_);
      if (has_input) begin = std::max(begin, output(action, forward, before));
      if (begin == kNever) return false;
      seconds = forward ? costs.forward_s : costs.backward_s;
      // Messages to another stage are late by their transfer.
      output(action, forward, action.layer) = begin + seconds;
    }
    events_.push_back({static_cast<int64_t>(stage), action.chunk, action.microbatch, action.kind,
                       begin, begin + seconds});
    clock_[stage] = begin + seconds;
    busy_[stage] += seconds;
    return true;
  }

  bool take(size_t stage, const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward:
      case ActionKind::kBackward:
      case ActionKind::kWeight: return pass(stage, action);
      case ActionKind::kSend: send(stage, action); return true;
      default: return true;
    }
  }

  // A send follows the last pass of its stage, which made what it sends.
  void send(size_t stage, const Action& action) {
    const Action& made = actions(stage)[next_[stage] - 1];
    const bool forward = action.payload == Payload::kActivation;
    if (!forward && action.payload != Payload::kGradient) return;
    output(made, forward, made.layer) +=
        forward ? cost(stage, action).send_activation_s : cost(stage, action).send_gradient_s;
  }

  const PipelineCosts& costs_;
  const Schedule& schedule_;
  std::vector<double> clock_, busy_;
  std::vector<size_t> next_;
  const size_t layers_;  // one for each chunk of the model
  std::vector<double> outputs_;
  std::vector<PipelineEvent> events_;
};

}  // namespace

Schedule condensed_schedule(const ScheduleShape& shape) {
  ScheduleParameters parameters;
  parameters.shape = shape;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    auto& chunks = parameters.layers.emplace_back();
    for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
      chunks.push_back({position_of_chunk(shape, {stage, chunk})});
    }
  }
  return make_schedule(parameters);
}

PipelineTime simulate_pipeline(const PipelineCosts& costs, const Schedule& schedule) {
  SMP_CHECK_EQ(static_cast<int64_t>(costs.size()), schedule.stages);
  return Simulation(costs, schedule).run();
}

}  // namespace smp
