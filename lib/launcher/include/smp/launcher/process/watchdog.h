#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>

namespace smp::process {

// Runs `supervise(control_fd)` in a second process and returns its exit code, so that the two guard
// each other: whichever is killed, even with SIGKILL, the other ends every process of the job.
//
//   caller        the process that the user sees; a subreaper. Passes the signals that reach it on,
//                 one byte each, through a socket. When the second process dies by a signal, it
//                 ends all descendants and returns ExitCode::kLauncherError.
//   second one    parent of all ranks, in a process group of its own, so that a Ctrl-C reaches it
//                 once, through the socket. End of file there: the first process has died.
//
// `watched`, if given, is a channel of the second process: when its other side has gone and the
// second process does not end within 0.3 s (somebody has stopped it), it is killed.
//
// `reads_terminal`: standard input is a terminal, and for the second process. A terminal gives it
// to the process group in the foreground alone, so both stay in one: Ctrl-C then reaches the second
// twice, which ignores the one that comes directly; SIGKILL to the group kills both.
//
// `after_death` is called in the first process once the second has died and all has been ended.
//
// Call it from a process of one thread, before any other child is started.
int run_with_watchdog(const std::function<int(int control_fd)>& supervise, int watched = -1,
                      bool reads_terminal = false, const std::function<void()>& after_death = {});

// From now on these signals wait for run_with_watchdog(), which passes them on, instead of ending
// this process.
void hold_signals(const std::set<int>& numbers);

// For the second process, before there are ranks: what stands in `control_fd`, which is readable.
// The number of a signal that ends it, 0 when the first process has died; nothing for signals that
// are for ranks, USR1, USR2 and CONT, but for those `also`.
std::optional<int> asked_to_end(int control_fd, const std::set<int>& also);

// For the second process: the first kills it once somebody has stopped it for so long, for nobody
// may tell of its channel's end where a network was cut. Without this it may be stopped for ever.
void may_be_stopped_for(std::chrono::milliseconds limit, int control_fd);

}  // namespace smp::process
