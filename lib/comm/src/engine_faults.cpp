#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "engine.h"

// The part of the engine that notices what went wrong and says so.
namespace smp::shm {
namespace {

using std::chrono::milliseconds;

// A peer that hands on what others send may wait for one of those, and is not to blame: whoever
// waits for that one directly, as somebody does, shall say so first.
constexpr milliseconds kPatience{10000};
// Within this a rank that waits looks again, unless it is stopped; where there is time for it, one
// that others keep from its CPU shall not be taken for stopped.
milliseconds look_within(const Operation& op) {
  return std::clamp<milliseconds>(op.timeout / 20, milliseconds(150), milliseconds(2000));
}

}  // namespace

std::string Engine::name(const Operation& op) const {
  const int peer = op.call.peer < 0 ? -1 : op.lane.member->global(op.call.peer);
  return fmt::format("rank {}: {}", rank_, describe(op.call, peer));
}

std::string Engine::last_call(int rank) const {
  const std::string text = load(job_.board(rank).last_call);
  return text.empty() ? "it has made no call yet" : "its last call: " + text;
}

void Engine::report(CommError::Kind kind, int culprit, const std::string& text) {
  job_.fail(job_.failure(), {kind, culprit, rank_, text});
  failures_seen_ = job_.failures();
  fail_affected();
}

void Engine::fail_affected() {
  for (Lane* lane : std::vector<Lane*>(active_))
    if (const auto failure = lane->member->failure()) fail_lane(*lane, *failure);
}

void Engine::fail_lane(Lane& lane, const Failure& failure) {
  while (!lane.operations.empty()) {
    const std::shared_ptr<Operation> op = lane.operations.front();
    lane.operations.pop_front();
    const std::string own = name(*op);
    const bool names_it = failure.text.rfind(own, 0) == 0;
    const bool both_sides = failure.kind == CommError::Kind::kMismatch;
    finish(*op, std::make_exception_ptr(
                    CommError(failure.kind, failure.culprit,
                              names_it || both_sides ? failure.text : own + ": " + failure.text)));
  }
}

// Cheap enough to be called whenever a thread is about to sleep.
void Engine::check_health() {
  if (job_.failures() != failures_seen_) {
    failures_seen_ = job_.failures();
    fail_affected();
  }
  for (Lane* lane : std::vector<Lane*>(active_))
    if (!lane->operations.empty()) check_peer(*lane->operations.front());
}

void Engine::check_peer(Operation& op) {
  if (op.counter_ == nullptr || op.peer_ < 0) return;
  const Member& member = *op.lane.member;
  if (op.ready()) return;
  const int late = member.mover_of(op, op.peer_), peer = member.global(late);
  try {
    member.check_calls(op);
  } catch (const CommError& e) {
    report(e.kind, e.culprit, e.what());
    return;
  }
  const auto limit = op.timeout + (op.at_second_hand ? kPatience : milliseconds(0));
  if (member.has_left(late) && !op.ready()) {
    report(CommError::Kind::kPeerLost, peer,
           fmt::format("{}: rank {} has left the group without calling it ({})", name(op), peer,
                       last_call(peer)));
  } else if (const auto why = member.unreachable(late)) {
    report(CommError::Kind::kPeerLost, peer, fmt::format("{}: {}", name(op), *why));
  } else if (Clock::now() - op.start_ > limit && !op.ready()) {
    op.overdue_.look(Clock::now());
    if (const auto found = verdict(op, late)) report(found->kind, found->culprit, found->text);
  }
}

std::optional<Standing> Engine::standing(int rank, const Operation& op) const {
  const Clock::time_point since = op.overdue_.since();
  if (mover_ != nullptr && mover_->is_elsewhere(rank))
    return mover_->ask(rank, op.lane.member->key_of(op), op.call.number, since);
  Standing here;
  const RankBoard& board = job_.board(rank);
  here.waits_for = board.blocked_on.load() - 1;
  // One that was stopped while it waited has not looked since, and waits for nobody.
  if (here.waits_for >= 0 && board.looked_ns.load() < since.time_since_epoch().count()) {
    if (op.overdue_.looked_for() < look_within(op)) return std::nullopt;
    here.waits_for = -1;
  }
  here.last_call = load(job_.board(rank).last_call);
  return here;
}

// The rank that this operation waits for may itself wait for another one: follow the chain, by
// asking where it leads to other hosts, so that the one to blame is named. Nothing while an answer
// is on its way.
std::optional<Failure> Engine::verdict(const Operation& op, int late) const {
  std::vector<int> chain;
  std::vector<Standing> said;
  std::set<int> seen = {rank_};
  const Member& member = *op.lane.member;
  for (int rank = member.global(late); rank >= 0 && seen.insert(rank).second;
       rank = said.back().waits_for) {
    const auto its = standing(rank, op);
    if (!its) return std::nullopt;
    chain.push_back(rank);
    said.push_back(*its);
  }
  auto last_call = [&](size_t i) {
    if (!said[i].last_call.empty()) return "its last call: " + said[i].last_call;
    if (i > 0 && !said[i - 1].last_call_of_awaited.empty())
      return "its last call: " + said[i - 1].last_call_of_awaited;
    if (!said[i].is_mute) return std::string("it has made no call yet");
    const std::string heard = load(job_.board(chain[i]).last_call);
    return "it does not answer" + (heard.empty() ? "" : "; its last call heard of: " + heard);
  };
  std::string text = fmt::format("{} timed out after {:g} s: rank {} ", name(op),
                                 std::chrono::duration<double>(op.timeout).count(), chain[0]);
  if (said[0].has_called && chain.size() > 1) {
    text += "is in it too";
  } else {
    const char* did = member.has_abandoned(late) ? "left the group with an exception"
                      : said[0].has_called || member.has_called(late, op.call)
                          ? "stopped in it"
                          : "has not called it";
    text += fmt::format("{} ({})", did, last_call(0));
  }
  for (size_t i = 1; i < chain.size(); ++i)
    text += fmt::format("; rank {} waits for rank {} ({})", chain[i - 1], chain[i], last_call(i));
  return Failure{CommError::Kind::kTimeout, chain.back(), rank_, text};
}

}  // namespace smp::shm
