#pragma once

#include <signal.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "smp/launcher/job/cause.h"
#include "smp/launcher/job/host.h"
#include "smp/launcher/job/progress_watch.h"
#include "smp/launcher/process/log_file.h"

namespace smp::job {

struct RankFiles {
  std::string out_log, err_log;  // empty: no log files
  std::string error_file;        // of the rank's last words; empty: it cannot leave any
};

// Where the ranks' output goes, beside the files of each.
struct OutputRules {
  std::set<int> shown_ranks{0};        // on the console
  std::string prefix = "[{rank}] ";    // of their lines, a RankTemplate
  std::string host_name;               // for it, where LaunchJob::hosts is empty
  bool fold = false;                   // lines that ranks have in common are shown once
  bool coloured = false;               // a terminal: each rank has a colour
  bool live = false;                   // a terminal that shows one rank: lines may be rewritten
  std::vector<std::string> host_logs;  // a log of whole lines for each host; none: there are none
  process::LogLimit log_limit;
};

// What hung ranks are made to show.
enum class HangDump {
  kNone,
  kCalls,  // a plan's: their memory and last calls (SIGUSR2)
  kQuit,   // what a program does on SIGQUIT
  kGdb,    // the stacks of all threads
  kPySpy,  // those of Python
};

// When ranks are ended, and what happens when they hang or are to make room. Plain data.
struct WatchRules {
  std::chrono::milliseconds grace{5000};  // between asking ranks to end and killing them
  HangLimit hang_limit;                   // of ranks that post how far they are
  bool ends_on_hang = false;              // else it is only told
  HangDump hang_dump = HangDump::kNone;
  // Signals to the launcher that ask a plan's ranks, by SIGUSR1, to save a checkpoint and to end.
  std::set<int> checkpoint_signals{SIGUSR1};
  // Time for that checkpoint. Afterwards the signal ends the job as any other does.
  std::optional<std::chrono::milliseconds> checkpoint_grace;
};

// What the launcher is asked to run and how. Plain data.
struct LaunchJob {
  std::string id;                  // SMP_JOB_ID
  std::vector<Command> commands;   // by rank
  std::vector<RankFiles> files;    // by rank
  std::vector<std::string> hosts;  // their names; none: the ranks run on this one
  std::vector<int> host_of_rank;   // places in `hosts`
  OutputRules output;
  std::set<int> input_ranks;  // that are given what comes on standard input
  std::optional<std::chrono::milliseconds> timeout;
  WatchRules rules;
  // The ranks end with kCheckpointedOnRequest when they have saved a checkpoint because a signal
  // asked for it: that is no failure.
  bool saves_on_request = false;
  std::string requeue;  // command by which the scheduler starts the job again; empty: not known
};

// Whether a log has all that the ranks write to the console.
bool logs_hold_output(const LaunchJob& job);
inline constexpr const char* kNoLogHoldsIt = "no log holds the output of the ranks (see --run-dir)";

// By rank: which of its host's it is, from 0.
std::vector<int> local_ranks_of(const LaunchJob& job);

enum class JobEnd {
  kSuccess,
  kRankFailed,
  kTimeout,           // --timeout
  kInterrupted,       // by a signal to the launcher
  kLauncherError,     // a rank could not be started, a log not written, ...
  kCheckpointed,      // all ranks saved a checkpoint on request, and ended
  kHang,              // no rank went on, and the job is to end then
  kHostsUnreachable,  // nothing was started
};

// How a job has ended. Plain data.
struct JobResult {
  JobEnd end = JobEnd::kSuccess;
  int exit_code = 0;
  std::optional<Cause> cause;
  std::optional<Hang> hang;  // for kHang
  int interrupted_by = 0;    // signal
  int end_signal = 0;   // the last that asked for an end, also where something else had ended it
  int unsaved_for = 0;  // the signal that asked for a checkpoint, where a failure came before it
  bool goes_on = true;  // for kCheckpointed: there is a checkpoint to go on from
  std::string launcher_error;            // for kLauncherError and kHostsUnreachable
  std::vector<std::string> unreachable;  // hosts, for kHostsUnreachable
  std::vector<RankState> ranks;
  std::vector<std::string> last_lines;  // of the standard error of the rank to blame
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds elapsed{0};
  std::chrono::milliseconds ending{0};  // from the decision to end the ranks until all had ended
  // From asking the ranks to end until they were killed; none: they were not.
  std::optional<std::chrono::milliseconds> killed_after;
  int left_behind = 0;  // processes that the ranks had started and not ended
  int not_ended = 0;    // of them, that smp-launch could not end either
};

// The exit code of smp-launch, from the other fields of `result`.
int exit_code_of(const JobResult& result);

}  // namespace smp::job
