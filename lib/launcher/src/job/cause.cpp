#include "smp/launcher/job/cause.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace smp::job {
namespace {

constexpr std::chrono::milliseconds kForSignals{50};  // an exit code may follow from a crash
constexpr std::chrono::milliseconds kForCulprit{300};
// A program may close its connections, or tell the others to end, long before it ends itself: it
// tidies up, and others fail of that.
constexpr std::chrono::milliseconds kForPeer{2000};

// A crash, a kill from outside or an error of its own explains itself. An exit code, an abort() or
// a broken pipe can also be how a rank reacts to the loss of another.
bool explains_itself(const RankState& state) {
  if (!state.lost.empty()) return true;
  if (state.error) return !state.error->blames_another() && !state.reports_peer_failure;
  const int signal = state.end.signal;
  return signal != 0 && signal != SIGABRT && signal != SIGPIPE && signal != SIGTERM &&
         signal != SIGINT && signal != SIGHUP;
}

bool blames_another(const RankState& state) { return state.error && state.error->blames_another(); }

bool was_told_to_end(const RankState& state) {
  return blames_another(state) && state.error->kind == process::RankErrorKind::kAborted;
}

// Follows "it was rank c" from one failed rank to the next; the last one is to blame, or, if they
// blame each other in a circle, the one that we came from.
int follow(const std::vector<RankState>& ranks, int rank) {
  std::set<int> seen{rank};
  int current = rank;
  while (ranks[current].failed_by_itself() && blames_another(ranks[current])) {
    const int next = ranks[current].error->culprit;
    if (!seen.insert(next).second) return rank;
    current = next;
  }
  return current;
}

// The first failed rank that names `culprit`, or else the first that failed.
int witness_against(const std::vector<RankState>& ranks, int culprit, int first) {
  std::optional<int> witness;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const RankState& state = ranks[rank];
    if (state.failed_by_itself() && state.error && state.error->culprit == culprit &&
        (!witness || state.order < ranks[*witness].order))
      witness = rank;
  }
  return witness.value_or(first);
}

}  // namespace

bool failed_because_of_peer(const RankState& state) {
  return state.failed_by_itself() && state.reports_peer_failure && !blames_another(state) &&
         !explains_itself(state);
}

std::optional<Cause> find_cause(const std::vector<RankState>& ranks) {
  const int count = static_cast<int>(ranks.size());
  std::vector<int> blamed(ranks.size(), 0);  // how many failures lead to this rank
  std::optional<int> first;
  for (int rank = 0; rank < count; ++rank) {
    if (!ranks[rank].failed_by_itself()) continue;
    if (!first || ranks[rank].order < ranks[*first].order) first = rank;
    ++blamed[follow(ranks, rank)];
  }
  if (!first) return std::nullopt;

  // Ranks that failed for a reason of their own come before those that are only blamed.
  const auto worth = [&](int rank) {
    const RankState& state = ranks[rank];
    const bool own = state.failed_by_itself() && !blames_another(state);
    const bool by_itself = own && explains_itself(state);
    const bool first_hand = own && !failed_because_of_peer(state);
    const int order = state.ended ? -state.order : -count - 1;
    return std::tuple(own, by_itself, state.stopped, blamed[rank], first_hand, order);
  };
  int best = follow(ranks, *first);
  for (int rank = 0; rank < count; ++rank) {
    if (blamed[rank] > 0 && worth(rank) > worth(best)) best = rank;
  }

  const RankState& state = ranks[best];
  Cause cause;
  cause.rank = best;
  cause.witness = state.failed_by_itself() ? best : witness_against(ranks, best, *first);
  cause.alive = !state.ended || state.ended_by_launcher;
  cause.stopped = state.stopped;
  if (state.stopped || (state.ended && !state.failed_by_itself()))
    cause.worth_waiting = {};
  else if (!state.ended || blames_another(state))
    cause.worth_waiting = was_told_to_end(ranks[cause.witness]) ? kForPeer : kForCulprit;
  else if (!explains_itself(state) && blamed[best] <= 1)
    cause.worth_waiting = failed_because_of_peer(state) ? kForPeer : kForSignals;
  return cause;
}

}  // namespace smp::job
