#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "schedule_stage_check.h"
#include "smp/plan/check.h"
#include "smp/plan/schedule.h"

// The proof walks all stages at once. A stage goes on until it must wait: for the message of a
// receive_wait to be sent, for the message of a send_wait to be received (nothing is buffered), or
// in its step for all other steps (the norm is a sum over all ranks). Waiting only ever depends on
// what other stages have started, and starting never waits, so the order in which stages are walked
// does not change where they stop: one walk proves all timings.
namespace smp {
namespace {

// Started messages of one channel. The n-th send meets the n-th receive.
struct Channel {
  std::vector<size_t> sends;     // index in the sender's actions
  std::vector<size_t> receives;  // index in the receiver's actions
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const ScheduleParameters& parameters)
      : schedule_(schedule),
        position_(schedule.actions.size(), 0),
        past_step_(schedule.actions.size(), false) {
    for (int64_t stage = 0; stage < schedule.stages; ++stage) {
      checks_.emplace_back(parameters, stage, schedule.live_bound[static_cast<size_t>(stage)]);
    }
  }

  std::optional<std::string> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int64_t stage = 0; stage < schedule_.stages; ++stage) {
        while (!ended(stage) && !waits_for(stage)) {
          if (auto problem = execute(stage)) return problem;
          moved = true;
        }
      }
    }
    if (auto problem = deadlock()) return problem;
    for (int64_t stage = 0; stage < schedule_.stages; ++stage) {
      const auto missing = checks_[static_cast<size_t>(stage)].missing_at_end();
      if (missing) return "stage " + std::to_string(stage) + ", at its end: " + *missing;
    }
    return std::nullopt;
  }

 private:
  const std::vector<Action>& actions(int64_t stage) const {
    return schedule_.actions[static_cast<size_t>(stage)];
  }
  size_t position(int64_t stage) const { return position_[static_cast<size_t>(stage)]; }
  bool ended(int64_t stage) const { return position(stage) == actions(stage).size(); }
  const Action& next(int64_t stage) const { return actions(stage)[position(stage)]; }

  std::string place(int64_t stage, size_t index) const {
    return "stage " + std::to_string(stage) + ", action " + std::to_string(index) + " (" +
           to_string(actions(stage)[index]) + ")";
  }

  // Number of a started message in its channel. Nothing if it was not started.
  std::optional<size_t> number_in_channel(int64_t stage, const Action& action,
                                          const std::vector<size_t>& started) const {
    for (size_t n = started.size(); n-- > 0;) {
      const Action& start = actions(stage)[started[n]];
      if (start.payload == action.payload && start.microbatch == action.microbatch) return n;
    }
    return std::nullopt;
  }

  // What the stage must wait for before its next action, as text; nothing if it can go on.
  std::optional<std::string> waits_for(int64_t stage) {
    const Action& action = next(stage);
    const std::string peer = "stage " + std::to_string(action.peer);
    if (action.kind == ActionKind::kReceiveWait) {
      const Channel& channel = channels_[{action.peer, stage}];
      const auto number = number_in_channel(stage, action, channel.receives);
      if (number && channel.sends.size() <= *number) return peer + " has not sent it";
    }
    if (action.kind == ActionKind::kSendWait) {
      const Channel& channel = channels_[{stage, action.peer}];
      const auto number = number_in_channel(stage, action, channel.sends);
      if (number && channel.receives.size() <= *number)
        return peer + " has not begun to receive it";
    }
    if (action.kind == ActionKind::kStep) {
      for (int64_t other = 0; other < schedule_.stages; ++other) {
        if (!reached_step(other))
          return "stage " + std::to_string(other) + " has not come to its step";
      }
    }
    return std::nullopt;
  }

  bool reached_step(int64_t stage) const {
    return past_step_[static_cast<size_t>(stage)] ||
           (!ended(stage) && next(stage).kind == ActionKind::kStep);
  }

  std::optional<std::string> execute(int64_t stage) {
    const Action& action = next(stage);
    const size_t index = position(stage);
    if (const auto problem = checks_[static_cast<size_t>(stage)].apply(action)) {
      return place(stage, index) + ": " + *problem;
    }
    ++position_[static_cast<size_t>(stage)];
    if (action.kind == ActionKind::kStep) past_step_[static_cast<size_t>(stage)] = true;
    if (action.kind == ActionKind::kSend) return start(stage, action.peer, index, true);
    if (action.kind == ActionKind::kReceive) return start(action.peer, stage, index, false);
    return std::nullopt;
  }

  std::optional<std::string> start(int64_t from, int64_t to, size_t index, bool sends) {
    Channel& channel = channels_[{from, to}];
    std::vector<size_t>& own = sends ? channel.sends : channel.receives;
    const size_t number = own.size();
    own.push_back(index);
    if (channel.sends.size() <= number || channel.receives.size() <= number) return std::nullopt;
    const Action& sent = actions(from)[channel.sends[number]];
    const Action& received = actions(to)[channel.receives[number]];
    if (sent.payload == received.payload && sent.microbatch == received.microbatch) {
      return std::nullopt;
    }
    return "message " + std::to_string(number) + " of channel " + std::to_string(from) + " -> " +
           std::to_string(to) + " differs on its two sides:\n  sent by " +
           place(from, channel.sends[number]) + "\n  received by " +
           place(to, channel.receives[number]);
  }

  std::optional<std::string> deadlock() {
    std::ostringstream text;
    bool stuck = false;
    for (int64_t stage = 0; stage < schedule_.stages; ++stage) {
      if (ended(stage)) {
        text << "\n  stage " << stage << " has ended";
        continue;
      }
      stuck = true;
      text << "\n  " << place(stage, position(stage)) << ": " << *waits_for(stage);
    }
    if (!stuck) return std::nullopt;
    return "deadlock: no stage can go on" + text.str();
  }

  const Schedule& schedule_;
  std::vector<size_t> position_;
  std::vector<bool> past_step_;
  std::vector<StageCheck> checks_;
  std::map<std::pair<int64_t, int64_t>, Channel> channels_;  // by (sender, receiver)
};

}  // namespace

std::optional<std::string> verify(const Schedule& schedule, const ScheduleParameters& parameters) {
  const auto stages = static_cast<int64_t>(parameters.layers.size());
  SMP_CHECK_EQ(schedule.stages, stages);
  SMP_CHECK_EQ(schedule.actions.size(), parameters.layers.size());
  SMP_CHECK_EQ(schedule.live_bound.size(), parameters.layers.size());
  SMP_CHECK_EQ(schedule.microbatches, parameters.microbatches);
  const int64_t cap = parameters.active_microbatches;
  for (int64_t stage = 0; cap > 0 && stage < stages; ++stage) {
    const int64_t bound = schedule.live_bound[static_cast<size_t>(stage)];
    if (bound <= cap) continue;
    return "stage " + std::to_string(stage) + " promises " + std::to_string(bound) +
           " live microbatches, active_microbatches is " + std::to_string(cap);
  }
  return Simulation(schedule, parameters).run();
}

}  // namespace smp
