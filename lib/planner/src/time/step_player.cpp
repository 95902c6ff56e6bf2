#include "time/step_player.h"

#include <algorithm>
#include <deque>
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
  double busy(double now, double seconds) const {
    return free_at_ <= now ? 0 : std::min(free_at_ - now, seconds);
  }
  void rebase(double begin) { free_at_ = std::max(0.0, free_at_ - begin); }

 private:
  double free_at_ = 0;
};

// Messages from one stage to another, in the order in which they are sent and received.
struct Channel {
  struct Send {
    double posted_s = 0, seconds = 0;
  };
  explicit Channel(int64_t sender) : from(sender) {}

  int64_t from;
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
  const Channel* channel = nullptr;
  size_t message = 0;  // of its channel
  size_t action = 0;   // that started it
  double done_s = 0;   // of a transfer

  bool is_of(const Action& wait) const {
    return payload == wait.payload && chunk == wait.chunk && microbatch == wait.microbatch;
  }
};

struct Stage {
  const std::vector<Action>* actions = nullptr;
  const StageActionSeconds* seconds = nullptr;
  PlayedStage* played = nullptr;
  int64_t index = 0;
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
      : seconds_(seconds),
        with_actions_(detail == PlayedDetail::kActions),
        stages_(schedule.actions.size()),
        channels_(schedule.actions.size()) {
    for (size_t i = 0; i < stages_.size(); ++i) {
      const size_t buckets = seconds.stages[i].buckets.size();
      stages_[i].actions = &schedule.actions[i];
      stages_[i].seconds = &seconds.stages[i];
      stages_[i].index = static_cast<int64_t>(i);
      stages_[i].reduced.assign(buckets, 0);
      stages_[i].summed.assign(buckets, 0);
      stages_[i].gathered.assign(buckets, 0);
    }
  }

  // What the step before leaves: its updates, and the gathers that they start.
  void end_step_before() {
    begin();
    for (Stage& stage : stages_) {
      const std::vector<Action>& actions = *stage.actions;
      const auto updates = std::find_if(actions.begin(), actions.end(), [](const Action& action) {
        return action.kind == ActionKind::kUpdate || action.kind == ActionKind::kStep;
      });
      stage.next = static_cast<size_t>(updates - actions.begin());
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
      stages_[i].played = &played_.stages[i];
      channels_[i].clear();
      if (!with_actions_) continue;
      played_.stages[i].actions.resize(stages_[i].actions->size());
      played_.stages[i].calls.resize(stages_[i].actions->size());
    }
  }

  void run_all() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Stage& stage : stages_) moved |= advance(stage);
    }
    for (const Stage& stage : stages_) {
      SMP_CHECK_EQ(stage.next, stage.actions->size());
      played_.seconds = std::max(played_.seconds, stage.clock);
    }
  }

  // Runs the stage's actions until one whose data have not been sent yet. Whether any ran.
  bool advance(Stage& stage) {
    const size_t first = stage.next;
    for (; stage.next < stage.actions->size(); ++stage.next) {
      const double begin = stage.clock;
      if (!run(stage, (*stage.actions)[stage.next])) break;
      if (with_actions_) stage.played->actions[stage.next] = {begin, stage.clock};
    }
    return stage.next > first;
  }

  // False: it has to wait for another stage first.
  bool run(Stage& stage, const Action& action) {
    const StageActionSeconds& own = *stage.seconds;
    const auto layer = [&]() -> const LayerActionSeconds& {
      return seconds_.layers[static_cast<size_t>(action.layer)];
    };
    const auto bucket = static_cast<size_t>(std::max(action.bucket, 0));
    switch (action.kind) {
      case ActionKind::kReceive: receive(stage, action); return true;
      case ActionKind::kReceiveWait: return wait(stage, action, stage.receives);
      case ActionKind::kSend: send(stage, action); return true;
      case ActionKind::kSendWait: return wait(stage, action, stage.sends);
      case ActionKind::kForward: compute(stage, layer().forward); return true;
      case ActionKind::kBackward:
        wait_fetch(stage, action);
        compute(stage, layer().backward);
        stage.played->last_gradient_s = stage.clock;
        return true;
      case ActionKind::kWeight:
        compute(stage, layer().weight);
        stage.played->last_gradient_s = stage.clock;
        return true;
      case ActionKind::kRecompute:
        wait_fetch(stage, action);
        compute(stage, layer().recompute);
        return true;
      case ActionKind::kOffload: transfer(stage, layer().offload); return true;
      case ActionKind::kFetch: {
        const double done = transfer(stage, layer().offload);
        stage.fetches.push_back({.chunk = action.chunk,
                                 .microbatch = action.microbatch,
                                 .layer = action.layer,
                                 .done_s = done});
        return true;
      }
      case ActionKind::kRouterLoads: return agree(stage, loads_);
      case ActionKind::kReduceKv: compute(stage, layer().reduce_kv); return true;
      case ActionKind::kReduce:
        stage.reduced[bucket] = call(stage, stage.reductions, own.buckets[bucket].reduce);
        return true;
      case ActionKind::kReduceWait: expose(stage, stage.reduced[bucket]); return true;
      case ActionKind::kReduceReplicas:
        stage.summed[bucket] = call(stage, stage.replicas, own.buckets[bucket].reduce_replicas);
        return true;
      case ActionKind::kReduceReplicasWait: expose(stage, stage.summed[bucket]); return true;
      case ActionKind::kGradientNorm: update(stage, own.buckets[bucket].norm); return true;
      case ActionKind::kStep: return agree(stage, step_);
      case ActionKind::kUpdate:
        update(stage, action.bucket < 0 ? own.update_all : own.buckets[bucket].update);
        return true;
      case ActionKind::kGather:
        stage.gathered[bucket] = call(stage, stage.reductions, own.buckets[bucket].gather);
        return true;
      case ActionKind::kGatherWait: expose(stage, stage.gathered[bucket]); return true;
      case ActionKind::kFree: return true;
    }
    return true;
  }

  static PlayedSums& sums(Stage& stage) { return stage.played->sums; }

  void pass_until(Stage& stage, double then, double PlayedSums::*part) {
    if (then <= stage.clock) return;
    sums(stage).*part += then - stage.clock;
    stage.clock = then;
  }
  void expose(Stage& stage, double done) { pass_until(stage, done, &PlayedSums::exposed); }

  void compute(Stage& stage, double seconds) {
    const double slowed = seconds_.reduce_slowdown * stage.reductions.busy(stage.clock, seconds) +
                          seconds_.replicas_slowdown * stage.replicas.busy(stage.clock, seconds);
    sums(stage).computing += seconds;
    sums(stage).slowed += slowed;
    stage.clock += seconds + slowed;
  }
  void update(Stage& stage, double seconds) {
    sums(stage).updating += seconds;
    stage.clock += seconds;
  }

  // When the call that the next action starts is done.
  double call(Stage& stage, Lane& lane, double seconds) {
    const Played played = lane.start(stage.clock, seconds);
    note_call(stage, stage.next, played);
    return played.end_s;
  }
  void note_call(Stage& stage, size_t action, const Played& played) {
    if (with_actions_) stage.played->calls[action] = played;
  }

  double transfer(Stage& stage, double seconds) {
    if (seconds_.offloads_beside) return call(stage, stage.host, seconds);
    pass_until(stage, stage.clock + seconds, &PlayedSums::offloading);
    return stage.clock;
  }
  void wait_fetch(Stage& stage, const Action& action) {
    std::vector<Open>& fetches = stage.fetches;
    const auto own = std::find_if(fetches.begin(), fetches.end(), [&](const Open& open) {
      return open.layer == action.layer && open.chunk == action.chunk &&
             open.microbatch == action.microbatch;
    });
    if (own == fetches.end()) return;
    pass_until(stage, own->done_s, &PlayedSums::offloading);
    fetches.erase(own);
  }

  Channel& channel(int64_t from, int64_t to) {
    std::deque<Channel>& known = channels_[static_cast<size_t>(to)];
    for (Channel& one : known) {
      if (one.from == from) return one;
    }
    return known.emplace_back(from);
  }

  void receive(Stage& stage, const Action& action) {
    Channel& from = channel(action.peer, stage.index);
    open(stage.receives, stage, action, from, from.receives.size());
    from.receives.push_back(stage.clock);
    from.settle();
  }
  void send(Stage& stage, const Action& action) {
    Channel& to = channel(stage.index, action.peer);
    open(stage.sends, stage, action, to, to.sends.size());
    to.sends.push_back({stage.clock, message_seconds(stage, action)});
    to.settle();
  }
  static void open(std::vector<Open>& list, const Stage& stage, const Action& action,
                   const Channel& channel, size_t message) {
    list.push_back({.payload = action.payload,
                    .chunk = action.chunk,
                    .microbatch = action.microbatch,
                    .channel = &channel,
                    .message = message,
                    .action = stage.next});
  }
  double message_seconds(const Stage& stage, const Action& action) const {
    const auto chunk = static_cast<size_t>(action.chunk);
    switch (action.payload) {
      case Payload::kActivation: return stage.seconds->messages[chunk].activation;
      case Payload::kGradient: return stage.seconds->messages[chunk].gradient;
      case Payload::kTiedGradient: return seconds_.tied_gradient;
      case Payload::kTiedWeight: return seconds_.tied_weight;
      case Payload::kNone: break;
    }
    return 0;
  }

  bool wait(Stage& stage, const Action& action, std::vector<Open>& list) {
    const auto own = std::find_if(list.begin(), list.end(),
                                  [&](const Open& open) { return open.is_of(action); });
    SMP_CHECK(own != list.end());
    const std::vector<Played>& transfers = own->channel->transfers;
    if (own->message >= transfers.size()) return false;
    const Played& transfer = transfers[own->message];
    note_call(stage, own->action, transfer);
    pass_until(stage, transfer.end_s, &PlayedSums::messages);
    list.erase(own);
    return true;
  }

  // All stages come to a meeting, and go on together.
  bool agree(Stage& stage, Meeting& meeting) {
    std::optional<double>& own = meeting.came[static_cast<size_t>(stage.index)];
    if (!own) {
      own = stage.clock;
      meeting.latest = std::max(meeting.latest, *own);
      ++meeting.stages;
    }
    if (meeting.stages < stages_.size()) return false;
    pass_until(stage, meeting.latest, &PlayedSums::messages);
    pass_until(stage, meeting.latest + seconds_.agree, &PlayedSums::exposed);
    return true;
  }

  const StepActionSeconds& seconds_;
  const bool with_actions_;
  std::vector<Stage> stages_;
  std::vector<std::deque<Channel>> channels_;  // by receiving stage
  Meeting step_, loads_;
  PlayedStep played_;
};

// Whether a list waits for a gather that it has not started: in its first forwards, if at all.
bool continues_a_step(const schedule::Schedule& schedule) {
  for (const std::vector<Action>& actions : schedule.actions) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kGather || action.kind == ActionKind::kBackward) break;
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
