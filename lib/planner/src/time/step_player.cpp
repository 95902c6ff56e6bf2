#include "time/step_player.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "smp/plan/base/check.h"

namespace smp::time {
namespace {

using schedule::Action;
using schedule::ActionKind;
using schedule::Payload;

// One group, or one link, that does one call after the other.
class Lane {
 public:
  // When the call is done that is started at `now`.
  Played start(double now, double seconds) {
    const double begin = std::max(now, free_at_);
    free_at_ = begin + seconds;
    return {begin, free_at_};
  }
  // How long it is busy of the next `seconds`: its calls follow each other.
  double busy(double now, double seconds) const { return std::clamp(free_at_ - now, 0.0, seconds); }
  void rebase(double begin) { free_at_ = std::max(0.0, free_at_ - begin); }

 private:
  double free_at_ = 0;
};

// Messages from one stage to another, in the order in which they are sent and received.
struct Channel {
  struct Send {
    double posted_s = 0, seconds = 0;
  };
  int64_t from = 0;
  std::vector<Send> sends;
  std::vector<double> receives;   // when posted
  std::vector<Played> transfers;  // of those that both sides have posted

  void settle() {
    while (transfers.size() < std::min(sends.size(), receives.size())) {
      const Send& send = sends[transfers.size()];
      const double free_at = transfers.empty() ? 0 : transfers.back().end_s;
      const double begin = std::max({send.posted_s, receives[transfers.size()], free_at});
      transfers.push_back({begin, begin + send.seconds});
    }
  }
};

// A message that a stage has started and not waited for, or a transfer of a call's kept tensors.
struct Open {
  Payload payload = Payload::kNone;
  int16_t chunk = 0;
  int32_t microbatch = -1, layer = -1;
  int64_t peer = 0;    // stage
  size_t message = 0;  // of its channel
  size_t action = 0;   // that started it
  double done_s = 0;   // of a transfer

  bool is_of(const Action& wait) const {
    return payload == wait.payload && chunk == wait.chunk && microbatch == wait.microbatch;
  }
};

struct Stage {
  size_t next = 0;
  double clock = 0;
  Lane reductions, replicas, host;
  // By bucket, of calls that are not waited for yet; when they are done.
  std::vector<double> reduced, summed, gathered;
  std::vector<Open> receives, sends, fetches;
};

// An action for which all stages wait.
struct Meeting {
  std::vector<std::optional<double>> came;  // when, by stage
  double latest = 0;
  size_t stages = 0;  // that have come
};

class Player {
 public:
  Player(const schedule::Schedule& schedule, const StepActionSeconds& seconds, PlayedDetail detail)
      : schedule_(schedule),
        seconds_(seconds),
        with_actions_(detail == PlayedDetail::kActions),
        stages_(schedule.actions.size()),
        channels_(schedule.actions.size()) {
    for (size_t i = 0; i < stages_.size(); ++i) {
      const size_t buckets = seconds.stages[i].buckets.size();
      stages_[i].reduced.assign(buckets, 0);
      stages_[i].summed.assign(buckets, 0);
      stages_[i].gathered.assign(buckets, 0);
    }
  }

  // What the step before leaves: its updates, and the gathers that they start.
  void end_step_before() {
    begin();
    for (size_t i = 0; i < stages_.size(); ++i) {
      const std::vector<Action>& actions = schedule_.actions[i];
      const auto updates = std::find_if(actions.begin(), actions.end(), [](const Action& action) {
        return action.kind == ActionKind::kUpdate || action.kind == ActionKind::kStep;
      });
      stages_[i].next = static_cast<size_t>(updates - actions.begin());
    }
    run_all();
    for (Stage& stage : stages_) {
      stage.clock = 0;
      for (Lane* lane : {&stage.reductions, &stage.replicas, &stage.host}) {
        lane->rebase(played_.seconds);
      }
      for (double& done : stage.gathered) done = std::max(0.0, done - played_.seconds);
    }
  }

  PlayedStep step() {
    begin();
    run_all();
    return std::move(played_);
  }

 private:
  void begin() {
    played_ = {};
    played_.stages.resize(stages_.size());
    step_ = loads_ = {.came = std::vector<std::optional<double>>(stages_.size())};
    for (size_t i = 0; i < stages_.size(); ++i) {
      stages_[i].next = 0;
      channels_[i].clear();
      if (!with_actions_) continue;
      played_.stages[i].actions.resize(schedule_.actions[i].size());
      played_.stages[i].calls.resize(schedule_.actions[i].size());
    }
  }

  void run_all() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < stages_.size(); ++i) moved |= advance(i);
    }
    for (size_t i = 0; i < stages_.size(); ++i) {
      SMP_CHECK_EQ(stages_[i].next, schedule_.actions[i].size());
      played_.seconds = std::max(played_.seconds, stages_[i].clock);
    }
  }

  // Runs the stage's actions until one whose data have not been sent yet. Whether any ran.
  bool advance(size_t index) {
    const std::vector<Action>& actions = schedule_.actions[index];
    Stage& stage = stages_[index];
    const size_t first = stage.next;
    for (; stage.next < actions.size(); ++stage.next) {
      const double begin = stage.clock;
      if (!run(index, actions[stage.next])) break;
      if (with_actions_) played_.stages[index].actions[stage.next] = {begin, stage.clock};
    }
    return stage.next > first;
  }

  // False: it has to wait for another stage first.
  bool run(size_t index, const Action& action) {
    Stage& stage = stages_[index];
    const StageActionSeconds& own = seconds_.stages[index];
    const auto layer = [&]() -> const LayerActionSeconds& {
      return seconds_.layers[static_cast<size_t>(action.layer)];
    };
    const auto bucket = static_cast<size_t>(std::max(action.bucket, 0));
    switch (action.kind) {
      case ActionKind::kReceive: receive(index, action); return true;
      case ActionKind::kReceiveWait: return wait(index, action, stage.receives, true);
      case ActionKind::kSend: send(index, action); return true;
      case ActionKind::kSendWait: return wait(index, action, stage.sends, false);
      case ActionKind::kForward: compute(index, layer().forward); return true;
      case ActionKind::kBackward:
        wait_fetch(index, action);
        compute(index, layer().backward);
        played_.stages[index].last_gradient_s = stage.clock;
        return true;
      case ActionKind::kWeight:
        compute(index, layer().weight);
        played_.stages[index].last_gradient_s = stage.clock;
        return true;
      case ActionKind::kRecompute:
        wait_fetch(index, action);
        compute(index, layer().recompute);
        return true;
      case ActionKind::kOffload: transfer(index, layer().offload); return true;
      case ActionKind::kFetch: {
        const double done = transfer(index, layer().offload);
        stage.fetches.push_back({.chunk = action.chunk,
                                 .microbatch = action.microbatch,
                                 .layer = action.layer,
                                 .done_s = done});
        return true;
      }
      case ActionKind::kRouterLoads: return agree(index, loads_);
      case ActionKind::kReduceKv: compute(index, layer().reduce_kv); return true;
      case ActionKind::kReduce:
        stage.reduced[bucket] = call(index, stage.reductions, own.buckets[bucket].reduce);
        return true;
      case ActionKind::kReduceWait: expose(index, stage.reduced[bucket]); return true;
      case ActionKind::kReduceReplicas:
        stage.summed[bucket] = call(index, stage.replicas, own.buckets[bucket].reduce_replicas);
        return true;
      case ActionKind::kReduceReplicasWait: expose(index, stage.summed[bucket]); return true;
      case ActionKind::kGradientNorm: update(index, own.buckets[bucket].norm); return true;
      case ActionKind::kStep: return agree(index, step_);
      case ActionKind::kUpdate:
        update(index, action.bucket < 0 ? own.update_all : own.buckets[bucket].update);
        return true;
      case ActionKind::kGather:
        stage.gathered[bucket] = call(index, stage.reductions, own.buckets[bucket].gather);
        return true;
      case ActionKind::kGatherWait: expose(index, stage.gathered[bucket]); return true;
      case ActionKind::kFree: return true;
    }
    return true;
  }

  PlayedSums& sums(size_t index) { return played_.stages[index].sums; }

  void pass_until(size_t index, double then, double PlayedSums::*part) {
    double& clock = stages_[index].clock;
    if (then <= clock) return;
    sums(index).*part += then - clock;
    clock = then;
  }
  void expose(size_t index, double done) { pass_until(index, done, &PlayedSums::exposed); }

  void compute(size_t index, double seconds) {
    Stage& stage = stages_[index];
    const double slowed = seconds_.reduce_slowdown * stage.reductions.busy(stage.clock, seconds) +
                          seconds_.replicas_slowdown * stage.replicas.busy(stage.clock, seconds);
    sums(index).computing += seconds;
    sums(index).slowed += slowed;
    stage.clock += seconds + slowed;
  }
  void update(size_t index, double seconds) {
    sums(index).updating += seconds;
    stages_[index].clock += seconds;
  }

  // When the call that the next action starts is done.
  double call(size_t index, Lane& lane, double seconds) {
    const Played played = lane.start(stages_[index].clock, seconds);
    note_call(index, stages_[index].next, played);
    return played.end_s;
  }
  void note_call(size_t index, size_t action, const Played& played) {
    if (with_actions_) played_.stages[index].calls[action] = played;
  }

  double transfer(size_t index, double seconds) {
    Stage& stage = stages_[index];
    if (seconds_.offloads_beside) return call(index, stage.host, seconds);
    pass_until(index, stage.clock + seconds, &PlayedSums::offloading);
    return stage.clock;
  }
  void wait_fetch(size_t index, const Action& action) {
    std::vector<Open>& fetches = stages_[index].fetches;
    const auto own = std::find_if(fetches.begin(), fetches.end(), [&](const Open& open) {
      return open.layer == action.layer && open.chunk == action.chunk &&
             open.microbatch == action.microbatch;
    });
    if (own == fetches.end()) return;
    pass_until(index, own->done_s, &PlayedSums::offloading);
    fetches.erase(own);
  }

  Channel& channel(int64_t from, size_t to) {
    for (Channel& known : channels_[to]) {
      if (known.from == from) return known;
    }
    channels_[to].push_back({.from = from, .sends = {}, .receives = {}, .transfers = {}});
    return channels_[to].back();
  }

  void receive(size_t index, const Action& action) {
    Channel& from = channel(action.peer, index);
    open(stages_[index].receives, index, action, from.receives.size());
    from.receives.push_back(stages_[index].clock);
    from.settle();
  }
  void send(size_t index, const Action& action) {
    Channel& to = channel(static_cast<int64_t>(index), static_cast<size_t>(action.peer));
    open(stages_[index].sends, index, action, to.sends.size());
    to.sends.push_back({stages_[index].clock, message_seconds(index, action)});
    to.settle();
  }
  void open(std::vector<Open>& list, size_t index, const Action& action, size_t message) {
    list.push_back({.payload = action.payload,
                    .chunk = action.chunk,
                    .microbatch = action.microbatch,
                    .peer = action.peer,
                    .message = message,
                    .action = stages_[index].next});
  }
  double message_seconds(size_t index, const Action& action) const {
    const auto chunk = static_cast<size_t>(action.chunk);
    switch (action.payload) {
      case Payload::kActivation: return seconds_.stages[index].messages[chunk].activation;
      case Payload::kGradient: return seconds_.stages[index].messages[chunk].gradient;
      case Payload::kTiedGradient: return seconds_.tied_gradient;
      case Payload::kTiedWeight: return seconds_.tied_weight;
      case Payload::kNone: break;
    }
    return 0;
  }

  bool wait(size_t index, const Action& action, std::vector<Open>& list, bool receives) {
    const auto own = std::find_if(list.begin(), list.end(),
                                  [&](const Open& open) { return open.is_of(action); });
    SMP_CHECK(own != list.end());
    const Channel& by = receives
                            ? channel(own->peer, index)
                            : channel(static_cast<int64_t>(index), static_cast<size_t>(own->peer));
    if (own->message >= by.transfers.size()) return false;
    const Played& transfer = by.transfers[own->message];
    note_call(index, own->action, transfer);
    pass_until(index, transfer.end_s, &PlayedSums::messages);
    list.erase(own);
    return true;
  }

  // All stages come to a meeting, and go on together.
  bool agree(size_t index, Meeting& meeting) {
    std::optional<double>& own = meeting.came[index];
    if (!own) {
      own = stages_[index].clock;
      meeting.latest = std::max(meeting.latest, *own);
      ++meeting.stages;
    }
    if (meeting.stages < stages_.size()) return false;
    pass_until(index, meeting.latest, &PlayedSums::messages);
    pass_until(index, meeting.latest + seconds_.agree, &PlayedSums::exposed);
    return true;
  }

  const schedule::Schedule& schedule_;
  const StepActionSeconds& seconds_;
  const bool with_actions_;
  std::vector<Stage> stages_;
  std::vector<std::vector<Channel>> channels_;  // by receiving stage
  Meeting step_, loads_;
  PlayedStep played_;
};

// Whether a list waits for a gather that it has not started.
bool continues_a_step(const schedule::Schedule& schedule) {
  for (const std::vector<Action>& actions : schedule.actions) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kGather) break;
      if (action.kind == ActionKind::kGatherWait) return true;
    }
  }
  return false;
}

}  // namespace

PlayedStep play_step(const schedule::Schedule& schedule, const StepActionSeconds& seconds,
                     PlayedDetail detail) {
  SMP_CHECK_EQ(schedule.actions.size(), seconds.stages.size());
  Player player(schedule, seconds, detail);
  if (continues_a_step(schedule)) player.end_step_before();
  return player.step();
}

}  // namespace smp::time
