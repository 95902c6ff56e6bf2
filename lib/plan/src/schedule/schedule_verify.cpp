#include <deque>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule_stage_check.h"
#include "smp/plan/base/check.h"
#include "smp/plan/schedule/schedule.h"

// The proof walks all stages at once. A stage proceeds until it must wait: for the message of a
// receive_wait to be sent, for the message of a send_wait to be received (nothing is buffered), or
// in its step for all other steps (the norm is a sum over all ranks). A wait depends only on
// actions that other stages have started, and starting never waits. So the order of the walk does
// not change where stages stop, and one walk proves all timings.
namespace smp::schedule {
namespace {

// Started messages of one channel. The n-th send meets the n-th receive.
struct Channel {
  std::vector<uint32_t> sends;     // index in the sender's actions
  std::vector<uint32_t> receives;  // index in the receiver's actions
};

// An action for which all stages wait.
struct Meeting {
  std::vector<char> has_come;  // by stage
  int64_t stages = 0;          // that have
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const ScheduleParameters& parameters)
      : schedule_(schedule),
        shape_(parameters.shape),
        position_(schedule.actions.size(), 0),
        step_{std::vector<char>(schedule.actions.size(), 0)},
        loads_{step_},
        is_queued_(schedule.actions.size(), 1),
        channels_(3 * schedule.actions.size()) {
    for (int64_t stage = 0; stage < schedule.stages; ++stage) {
      checks_.emplace_back(parameters, stage, schedule.live_bound[static_cast<size_t>(stage)]);
      numbers_.emplace_back(checks_.back().message_slots(), 0);
      queue_.push_back(stage);
    }
  }

  std::optional<std::string> run() {
    while (!queue_.empty()) {
      const int64_t stage = queue_.front();
      queue_.pop_front();
      is_queued_[static_cast<size_t>(stage)] = false;
      while (!ended(stage) && !must_wait(stage)) {
        if (auto problem = execute(stage)) return problem;
      }
    }
    if (auto problem = deadlock()) return problem;
    for (int64_t stage = 0; stage < schedule_.stages; ++stage) {
      const auto missing = check(stage).missing_at_end();
      if (missing) return "stage " + std::to_string(stage) + ", at its end: " + *missing;
    }
    return std::nullopt;
  }

 private:
  const std::vector<Action>& actions(int64_t stage) const {
    return schedule_.actions[static_cast<size_t>(stage)];
  }
  const StageCheck& check(int64_t stage) const { return checks_[static_cast<size_t>(stage)]; }
  size_t position(int64_t stage) const { return position_[static_cast<size_t>(stage)]; }
  bool ended(int64_t stage) const { return position(stage) == actions(stage).size(); }
  const Action& next(int64_t stage) const { return actions(stage)[position(stage)]; }

  std::string place(int64_t stage, size_t index) const {
    return "stage " + std::to_string(stage) + ", action " + std::to_string(index) + " (" +
           to_string(actions(stage)[index]) + ")";
  }

  void wake(int64_t stage) {
    if (std::exchange(is_queued_[static_cast<size_t>(stage)], char{1})) return;
    queue_.push_back(stage);
  }

  // A stage has channels to the next and the previous stage; the first and last stage to each
  // other.
  Channel& channel(int64_t from, int64_t to) {
    const int64_t index = to == from + 1 ? 0 : to == from - 1 ? 1 : 2;
    return channels_[static_cast<size_t>(3 * from + index)];
  }

  // The number of a started message in its channel.
  size_t number(int64_t stage, const Action& action) const {
    return numbers_[static_cast<size_t>(stage)][check(stage).message_slot(action)];
  }

  Meeting* meeting_of(ActionKind kind) {
    return kind == ActionKind::kStep          ? &step_
           : kind == ActionKind::kRouterLoads ? &loads_
                                              : nullptr;
  }

  bool must_wait(int64_t stage) {
    const Action& action = next(stage);
    if (Meeting* const meeting = meeting_of(action.kind)) {
      if (!std::exchange(meeting->has_come[static_cast<size_t>(stage)], char{1}) &&
          ++meeting->stages == schedule_.stages) {
        for (int64_t other = 0; other < schedule_.stages; ++other) wake(other);
      }
      return meeting->stages < schedule_.stages;
    }
    if (!check(stage).waits_for_started(action)) return false;
    if (action.kind == ActionKind::kReceiveWait) {
      return channel(action.peer, stage).sends.size() <= number(stage, action);
    }
    return channel(stage, action.peer).receives.size() <= number(stage, action);
  }

  // The reason why the stage waits, for people.
  std::string waits_for(int64_t stage) const {
    const Action& action = next(stage);
    const std::string peer = "stage " + std::to_string(action.peer);
    if (action.kind == ActionKind::kReceiveWait) return peer + " has not sent the message";
    if (action.kind == ActionKind::kSendWait) return peer + " has not begun to receive the message";
    const Meeting& meeting = action.kind == ActionKind::kStep ? step_ : loads_;
    for (int64_t other = 0; other < schedule_.stages; ++other) {
      if (meeting.has_come[static_cast<size_t>(other)]) continue;
      return "stage " + std::to_string(other) + " has not reached its " +
             std::string(name_of(action.kind));
    }
    check_failed(__FILE__, __LINE__, "a stage waits for nothing");
  }

  std::optional<std::string> execute(int64_t stage) {
    const Action& action = next(stage);
    const size_t index = position(stage);
    if (const auto problem = checks_[static_cast<size_t>(stage)].apply(action)) {
      return place(stage, index) + ": " + *problem;
    }
    ++position_[static_cast<size_t>(stage)];
    const bool sends = action.kind == ActionKind::kSend;
    if (!sends && action.kind != ActionKind::kReceive) return std::nullopt;
    wake(action.peer);
    Channel& used = sends ? channel(stage, action.peer) : channel(action.peer, stage);
    std::vector<uint32_t>& own = sends ? used.sends : used.receives;
    numbers_[static_cast<size_t>(stage)][check(stage).message_slot(action)] =
        static_cast<uint32_t>(own.size());
    own.push_back(static_cast<uint32_t>(index));
    return sends ? meet(stage, action.peer, used, own.size() - 1)
                 : meet(action.peer, stage, used, own.size() - 1);
  }

  // Both sides of a started message must name the same message.
  std::optional<std::string> meet(int64_t from, int64_t to, const Channel& channel,
                                  size_t number) const {
    if (channel.sends.size() <= number || channel.receives.size() <= number) return std::nullopt;
    const Action& sent = actions(from)[channel.sends[number]];
    const Action& received = actions(to)[channel.receives[number]];
    if (sent.payload == received.payload && sent.microbatch == received.microbatch &&
        chunks_meet(from, sent, to, received)) {
      return std::nullopt;
    }
    return "message " + std::to_string(number) + " of channel " + std::to_string(from) + " -> " +
           std::to_string(to) + " differs on its two sides:\n  sent by " +
           place(from, channel.sends[number]) + "\n  received by " +
           place(to, channel.receives[number]);
  }

  bool chunks_meet(int64_t from, const Action& sent, int64_t to, const Action& received) const {
    if (sent.microbatch < 0) return true;  // tied: of the whole stage
    const int64_t onwards = sent.payload == Payload::kActivation ? 1 : -1;
    return position_of_chunk(shape_, {from, int64_t{sent.chunk}}) + onwards ==
           position_of_chunk(shape_, {to, int64_t{received.chunk}});
  }

  std::optional<std::string> deadlock() const {
    std::ostringstream text;
    bool stuck = false;
    for (int64_t stage = 0; stage < schedule_.stages; ++stage) {
      if (ended(stage)) {
        text << "\n  stage " << stage << " has ended";
        continue;
      }
      stuck = true;
      text << "\n  " << place(stage, position(stage)) << ": " << waits_for(stage);
    }
    if (!stuck) return std::nullopt;
    return "deadlock: no stage can proceed" + text.str();
  }

  const Schedule& schedule_;
  const ScheduleShape& shape_;
  std::vector<size_t> position_;
  Meeting step_, loads_;
  std::vector<StageCheck> checks_;
  std::vector<std::vector<uint32_t>> numbers_;  // in its channel, by stage and message slot
  std::deque<int64_t> queue_;                   // stages that may be able to go on
  std::vector<char> is_queued_;
  std::vector<Channel> channels_;
};

}  // namespace

std::optional<std::string> verify(const Schedule& schedule, const ScheduleParameters& parameters) {
  const ScheduleShape& shape = parameters.shape;
  SMP_CHECK_EQ(schedule.stages, shape.stages);
  SMP_CHECK_EQ(schedule.actions.size(), parameters.layers.size());
  SMP_CHECK_EQ(schedule.live_bound.size(), parameters.layers.size());
  SMP_CHECK_EQ(schedule.microbatches, shape.microbatches);
  const int64_t cap = shape.active_microbatches * shape.chunks();
  for (int64_t stage = 0; cap > 0 && stage < shape.stages; ++stage) {
    const int64_t bound = schedule.live_bound[static_cast<size_t>(stage)];
    if (bound <= cap) continue;
    return "stage " + std::to_string(stage) + " promises " + std::to_string(bound) +
           (shape.chunks() == 1 ? " live microbatches" : " live microbatches in a chunk") +
           ", active_microbatches is " + std::to_string(shape.active_microbatches) +
           (shape.chunks() == 1 ? "" : " in " + std::to_string(shape.chunks()) + " chunks");
  }
  return Simulation(schedule, parameters).run();
}

}  // namespace smp::schedule
