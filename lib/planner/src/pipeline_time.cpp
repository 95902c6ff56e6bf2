#include "pipeline_time.h"

#include <algorithm>
#include <limits>

#include "smp/plan/check.h"
#include "smp/plan/schedule.h"

namespace smp {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Arrival times of microbatches at a stage, one list for each payload.
struct Inbox {
  std::vector<double> activations;
  std::vector<double> gradients;
};

class Simulation {
 public:
  Simulation(const std::vector<StageCost>& stages, const Schedule& schedule)
      : costs_(stages),
        schedule_(schedule),
        clock_(stages.size()),
        busy_(stages.size()),
        next_(stages.size()),
        inbox_(stages.size()) {
    for (Inbox& inbox : inbox_) {
      inbox.activations.assign(static_cast<size_t>(schedule.microbatches), kNever);
      inbox.gradients = inbox.activations;
    }
  }

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

  bool work(size_t stage, const Action& action, double seconds) {
    events_.push_back({static_cast<int64_t>(stage), action.microbatch,
                       action.kind == ActionKind::kBackward, clock_[stage],
                       clock_[stage] + seconds});
    clock_[stage] += seconds;
    busy_[stage] += seconds;
    return true;
  }

  // Does `action`, or says that its data have not been sent yet.
  bool take(size_t stage, const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward: return work(stage, action, costs_[stage].forward_s);
      case ActionKind::kBackward: return work(stage, action, costs_[stage].backward_s);
      case ActionKind::kReceiveWait: return receive(stage, action);
      case ActionKind::kSend: send(stage, action); return true;
      default: return true;
    }
  }

  bool receive(size_t stage, const Action& action) {
    const auto microbatch = static_cast<size_t>(action.microbatch);
    double arrival = 0;
    if (action.payload == Payload::kActivation) arrival = inbox_[stage].activations[microbatch];
    if (action.payload == Payload::kGradient) arrival = inbox_[stage].gradients[microbatch];
    if (arrival == kNever) return false;
    clock_[stage] = std::max(clock_[stage], arrival);
    return true;
  }

  void send(size_t stage, const Action& action) {
    const auto peer = static_cast<size_t>(action.peer);
    const auto microbatch = static_cast<size_t>(action.microbatch);
    if (action.payload == Payload::kActivation) {
      inbox_[peer].activations[microbatch] = clock_[stage] + costs_[stage].send_activation_s;
    } else if (action.payload == Payload::kGradient) {
      inbox_[peer].gradients[microbatch] = clock_[stage] + costs_[stage].send_gradient_s;
    }
  }

  const std::vector<StageCost>& costs_;
  const Schedule& schedule_;
  std::vector<double> clock_, busy_;
  std::vector<size_t> next_;
  std::vector<Inbox> inbox_;
  std::vector<PipelineEvent> events_;
};

}  // namespace

Schedule condensed_schedule(int64_t stages, PipelineKind kind, int64_t microbatches,
                            int64_t active_microbatches) {
  ScheduleParameters parameters;
  parameters.kind = kind;
  parameters.microbatches = microbatches;
  parameters.active_microbatches = active_microbatches;
  for (int64_t stage = 0; stage < stages; ++stage) parameters.layers.push_back({stage});
  parameters.bucket_first_layers.resize(static_cast<size_t>(stages));
  return make_schedule(parameters);
}

PipelineTime simulate_pipeline(const std::vector<StageCost>& stages, const Schedule& schedule) {
  SMP_CHECK_EQ(static_cast<int64_t>(stages.size()), schedule.stages);
  return Simulation(stages, schedule).run();
}

}  // namespace smp
