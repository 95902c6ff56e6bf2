#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "smp/launcher/job/host.h"
#include "smp/launcher/process/error_file.h"

// The root cause of a failed job: the rank to blame. One failure causes others. Ranks that lose a
// peer, or wait for it in vain, end too, and often sooner than the guilty one. Pure functions; any
// thread.
namespace smp::job {

// What is known of a rank.
struct RankState {
  bool ended = false;
  process::ProcessEnd end;
  bool ended_by_launcher = false;      // it ended after the launcher had begun to end the ranks
  bool stopped = false;                // by SIGSTOP or the like
  bool not_permitted = false;          // it belongs to another user, and may not be signalled
  std::string lost;                    // why its host was lost, and its own end with it
  bool lost_through_other = false;     // that one may be well (HostLoss)
  bool transport_lost = false;         // the way to all hosts ended
  int order = 0;                       // of its end among all ends
  std::chrono::milliseconds after{0};  // from the start of the job to its end
  std::optional<process::RankError> error;
  bool reports_peer_failure = false;  // its error file of torch, or else its last lines, as far as
                                      // they have come
  std::optional<runinfo::RankProgress> progress;  // what it had posted at its end

  bool failed_by_itself() const {
    return ended && (end.failed() || !lost.empty()) && !ended_by_launcher;
  }
};

// Whether a rank failed because a peer did, by its own report. A crash, a kill and an error of its
// own count more than its last lines.
bool failed_because_of_peer(const RankState& state);

struct Cause {
  int rank = 0;  // to blame
  // The failed rank whose exit code the launcher returns: `rank` itself, or if that has not failed,
  // the first one that blames it.
  int witness = 0;
  bool alive = false;    // it did not end: others waited for it in vain
  bool stopped = false;  // and the reason is SIGSTOP or the like
  // How long after the first failure one should wait for a better answer: a rank that only blames
  // another is no cause while that one's own end can still arrive.
  std::chrono::milliseconds worth_waiting{0};
};

// Empty while no rank has failed.
std::optional<Cause> find_cause(const std::vector<RankState>& ranks);

}  // namespace smp::job
