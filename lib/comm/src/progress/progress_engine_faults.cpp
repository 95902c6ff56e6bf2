#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "progress/progress_engine.h"
#include "waiting/process_state.h"

// The part of the engine that detects and reports failures.
namespace smp::progress {
namespace {

using std::chrono::milliseconds;

// A peer that relays data of other ranks may itself wait for one of them. The peer is then not to
// blame. So an operation that waits indirectly gives the rank that waits for the culprit directly
// this much time to report first. If the culprit is stopped the time is shorter: perhaps no rank
// waits directly, because the culprit has already done its part.
constexpr milliseconds kPatience{10000}, kPatienceWithStopped{100};
// A waiting rank looks again within this time, unless it is stopped. Long time-outs leave room for
// a rank that gets no CPU because of others: such a rank does not count as stopped.
milliseconds look_within(const Operation& op) {
  return std::clamp<milliseconds>(op.timeout / 20, milliseconds(150), milliseconds(2000));
}
// Ranks of other hosts are asked before the time-out: kAskAhead and mute_after() before it, so that
// a rank that cannot answer is known to be mute at the time-out. They are not asked before the time
// divided by kAskAfter.
constexpr milliseconds kAskAhead{200};
constexpr int kAskAfter = 8;
constexpr milliseconds kAskEvery{20};

}  // namespace

std::string ProgressEngine::name(const Operation& op) const {
  const int peer = op.call.peer < 0 ? -1 : op.lane.member->global(op.call.peer);
  return fmt::format("rank {}: {}", rank_, describe(op.call, peer));
}

std::string ProgressEngine::last_call(int rank) const {
  const std::string text = load(job_.board(rank).last_call);
  return text.empty() ? "no call yet" : "its last call: " + text;
}

void ProgressEngine::record(const segment::Failure& failure) {
  job_.fail(job_.failure(), failure);
  failures_seen_ = job_.failures();
}

void ProgressEngine::report(comm::CommError::Kind kind, int culprit, const std::string& text) {
  record({kind, culprit, rank_, text});
  fail_affected();
}

void ProgressEngine::fail_affected() {
  for (Lane* lane : std::vector<Lane*>(active_))
    if (const auto failure = lane->member->failure()) fail_lane(*lane, *failure);
}

void ProgressEngine::fail_lane(Lane& lane, const segment::Failure& failure) {
  while (!lane.is_empty()) {
    auto& first = lane.leaving.empty() ? lane.operations : lane.leaving;
    const std::shared_ptr<Operation> op = first.front();
    first.pop_front();
    const std::string own = name(*op);
    const bool names_it = failure.text.rfind(own, 0) == 0;
    const bool both_sides = failure.kind == comm::CommError::Kind::kMismatch;
    finish(*op, std::make_exception_ptr(comm::CommError(
                    failure.kind, failure.culprit,
                    names_it || both_sides ? failure.text : own + ": " + failure.text)));
  }
}

// Cheap enough to be called before every sleep of a thread.
void ProgressEngine::check_health() {
  if (job_.failures() != failures_seen_) {
    failures_seen_ = job_.failures();
    fail_affected();
  }
  note_start(Clock::now());
  for (Lane* lane : std::vector<Lane*>(active_)) {
    if (!lane->leaving.empty()) check_peer(*lane->leaving.front());
    if (!lane->operations.empty()) check_peer(*lane->operations.front());
  }
}

void ProgressEngine::check_peer(Operation& op) {
  if (op.counter_ == nullptr || op.peer_ < 0) return;
  const Member& member = *op.lane.member;
  // Before it blames a peer, this rank makes pieces that no rank has begun.
  if (op.start_ != Clock::time_point() && Clock::now() - op.start_ > op.timeout / 2)
    op.wanted_ = true;
  if (op.ready()) return;
  const int late = member.counter_owner(op, op.peer_), peer = member.global(late);
  try {
    member.check_calls(op);
  } catch (const comm::CommError& e) {
    report(e.kind, e.culprit, e.what());
    return;
  }
  if (member.has_left(late) && !op.ready()) {
    report(
        comm::CommError::Kind::kPeerLost, peer,
        fmt::format("{}: rank {} has left the group without {} the call ({})", name(op), peer,
                    member.has_called(late, op.call) ? "completing" : "making", last_call(peer)));
  } else if (const auto why = member.unreachable(late)) {
    report(comm::CommError::Kind::kPeerLost, peer, fmt::format("{}: {}", name(op), *why));
  } else if (Clock::now() - op.start_ > op.timeout && !op.ready()) {
    blame(op, late);
  } else if (network_ != nullptr) {
    ask_early(op, late);
  }
}

// Called when the time-out of `op` is over.
void ProgressEngine::blame(Operation& op, int late) {
  const auto now = Clock::now();
  op.overdue_.observe(now);
  const auto found = verdict(op, late);
  if (!found) return;
  const auto patience = found->is_stopped ? kPatienceWithStopped : kPatience;
  const auto limit = op.start_ + op.timeout + (op.is_indirect ? patience : milliseconds(0));
  if (now <= limit) return;
  if (!found->is_stopped && op.overdue_.since() < limit)
    op.overdue_ =
        waiting::Observation();  // the peers may have continued: observe again from now on
  else
    report(comm::CommError::Kind::kTimeout, found->culprit, found->text);
}

// Follows the chain of waits as far as answers have arrived, and asks the next rank. Ranks that
// have answered are asked again at the time-out.
void ProgressEngine::ask_early(Operation& op, int late) {
  const auto now = Clock::now();
  const auto ahead = network_->unresponsive_after() + kAskAhead;
  if (now - op.start_ < std::max(op.timeout / kAskAfter, op.timeout - ahead)) return;
  if (now - op.asked_ < kAskEvery) return;
  op.asked_ = now;
  (void)verdict(op, late);
}

bool ProgressEngine::has_heartbeat(int rank, const Operation& op) const {
  return job_.board(rank).heartbeat_ns.load() >= op.overdue_.since().time_since_epoch().count();
}

waiting::ProcessState ProgressEngine::state(int rank) const {
  const segment::RankBoard& board = job_.board(rank);
  const bool is_known = pid_namespace_ != 0 && board.pid_namespace.load() == pid_namespace_ &&
                        board.process.load() != job_.board(rank_).process.load();
  return is_known ? waiting::state_of(board.process.load()) : waiting::ProcessState::kUnknown;
}

// Whether a rank of this host that reported a wait is stopped, and so has not seen later counters.
// Nothing while the answer is not known.
std::optional<bool> ProgressEngine::is_stopped(int rank, const Operation& op) const {
  return waiting::is_stopped_by(state(rank), has_heartbeat(rank, op), op.overdue_.observed_for(),
                                look_within(op));
}

std::optional<PeerStatus> ProgressEngine::status_of(int rank, const Operation& op) const {
  const Clock::time_point since = op.overdue_.since();
  if (network_ != nullptr && network_->is_on_other_host(rank))
    return network_->query_status(rank, op.lane.member->key_of(op), op.call.number, since);
  PeerStatus here;
  const segment::RankBoard& board = job_.board(rank);
  here.waits_for = board.blocked_on.load() - 1;
  // A rank that was stopped during a wait counts as not waiting, so it is to blame.
  if (here.waits_for >= 0) {
    const auto stopped = is_stopped(rank, op);
    if (!stopped) return std::nullopt;
    if (*stopped) here.waits_for = -1;
    here.is_stopped = *stopped;
    here.is_behind = !*stopped && !has_heartbeat(rank, op);
  } else {
    here.is_stopped = op.overdue_.observed_for() >= kPatienceWithStopped &&
                      state(rank) == waiting::ProcessState::kStopped;
  }
  here.last_call = load(job_.board(rank).last_call);
  return here;
}

// The rank that this operation waits for may itself wait for another one. Follows that chain to the
// rank to blame, and asks ranks of other hosts. Nothing while an answer is on its way.
std::optional<ProgressEngine::Verdict> ProgressEngine::verdict(const Operation& op,
                                                               int late) const {
  std::vector<int> chain;
  std::vector<PeerStatus> said;
  std::set<int> seen = {rank_};
  const Member& member = *op.lane.member;
  for (int rank = member.global(late); rank >= 0 && seen.insert(rank).second;
       rank = said.back().waits_for) {
    const auto its = status_of(rank, op);
    if (!its) return std::nullopt;
    chain.push_back(rank);
    said.push_back(*its);
  }
  if (chain.empty()) return std::nullopt;  // the peer waits for this rank, whose counter has moved
  // In a circle of waits, a rank that had no CPU lately delays the others.
  const auto behind =
      std::find_if(said.begin(), said.end(), [](const PeerStatus& its) { return its.is_behind; });
  if (behind != said.end() && said.back().waits_for >= 0) {
    if (op.overdue_.observed_for() < look_within(op)) return std::nullopt;
    behind->waits_for = -1;
    said.erase(behind + 1, said.end());
    chain.resize(said.size());
  }
  auto last_call = [&](size_t i) {
    if (!said[i].last_call.empty()) return "its last call: " + said[i].last_call;
    if (i > 0 && !said[i - 1].last_call_of_awaited.empty())
      return "its last call: " + said[i - 1].last_call_of_awaited;
    if (!said[i].is_unresponsive) return std::string("no call yet");
    const std::string heard = load(job_.board(chain[i]).last_call);
    return "no answer" + (heard.empty() ? "" : "; last known call: " + heard);
  };
  std::string text = fmt::format("{} timed out after {:g} s: rank {} ", name(op),
                                 std::chrono::duration<double>(op.timeout).count(), chain[0]);
  const bool has_called = said[0].has_called || member.has_called(late, op.call);
  if (has_called && chain.size() > 1) {
    text += "is in the same call";
  } else {
    const char* did = member.has_abandoned(late) ? "left the group with an exception"
                      : has_called               ? "stopped in it"
                                                 : "has not made this call";
    text += fmt::format("{} ({})", did, last_call(0));
  }
  for (size_t i = 1; i < chain.size(); ++i)
    text += fmt::format("; rank {} waits for rank {} ({})", chain[i - 1], chain[i], last_call(i));
  return Verdict{chain.back(), said.back().is_unresponsive || said.back().is_stopped, text};
}

}  // namespace smp::progress
