#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>

namespace smp::process {

// Runs `supervise(control_fd)` in a second process and returns its exit code. The two processes are
// watchdogs of each other: when one is killed, even with SIGKILL, the other ends the job.
//
//   caller        the process that the user sees; a subreaper. Passes the signals that reach it on,
//                 one byte each, through a socket. When the second process dies by a signal, it
//                 ends all descendants and returns ExitCode::kLauncherError.
//   second one    parent of all ranks, in a process group of its own, so that a Ctrl-C reaches it
//                 once, through the socket. End of file there: the first process has died.
//
// `watched`, if given, is a channel of the second process. When its other side has gone, the second
// process has 0.3 s to end. Then it is killed, for somebody has stopped it.
//
// `reads_terminal`: standard input is a terminal, which the second process reads. Only the
// foreground process group may read a terminal, so both processes stay in one group. Ctrl-C then
// reaches the second one twice, and it ignores the direct one. SIGKILL to the group kills both.
//
// `after_death` is called in the first process once the second has died and all has been ended.
//
// Call it from a process of one thread, before any other child is started.
int run_with_watchdog(const std::function<int(int control_fd)>& supervise, int watched = -1,
                      bool reads_terminal = false, const std::function<void()>& after_death = {});

// From now on these signals wait for run_with_watchdog(), which passes them on, instead of ending
// this process.
void hold_signals(const std::set<int>& numbers);

// For the second process, before there are ranks: reads `control_fd`, which is readable. Returns
// the number of a signal that ends the job, or 0 when the first process has died. Returns nothing
// for USR1, USR2 and CONT, which are for ranks, unless they are among `also`.
std::optional<int> asked_to_end(int control_fd, const std::set<int>& also);

// For the second process: the first one kills it after it was stopped for `limit`. Without this it
// may stay stopped for ever, since a network that was cut does not end its channel.
void may_be_stopped_for(std::chrono::milliseconds limit, int control_fd);

}  // namespace smp::process
