#include "call_logs.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "smp/plan/system/signal_thread.h"

namespace smp::pytorch {
namespace {

void print_all(int /*signal*/) {
  const std::string text = call_logs().text(kCallsSaid);
  std::fputs(text.empty() ? "smp: no process group has made a call\n" : text.c_str(), stderr);
  std::fflush(stderr);
}

// A thread that was there before takes the signal once, and blocks it from then on. What was for
// the process goes to the thread that waits for it.
void block_here(int signal, siginfo_t* info, void* context) {
  sigaddset(&static_cast<ucontext_t*>(context)->uc_sigmask, signal);
  if (info->si_code != SI_TKILL || info->si_pid != getpid()) kill(getpid(), signal);
}

// Now, while whoever calls this most likely computes nothing, so that the handler does not run on
// a thread while it computes.
void block_in_other_threads(int signal) {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const int thread = std::atoi(task.path().filename().c_str());
    if (thread != gettid()) syscall(SYS_tgkill, getpid(), thread, signal);
  }
}

}  // namespace

void CallLogs::add(std::string place, const std::shared_ptr<const comm::CallLog>& log) {
  const std::lock_guard guard(mutex_);
  std::erase_if(logs_, [](const auto& one) { return one.second.expired(); });
  logs_.emplace_back(std::move(place), log);
}

std::string CallLogs::text(size_t most) const {
  const std::lock_guard guard(mutex_);
  std::string all;
  for (const auto& [place, log] : logs_)
    if (const auto alive = log.lock()) all += fmt::format("{}: {}", place, alive->text(most));
  return all;
}

// Never destroyed: a thread may print while the process ends.
CallLogs& call_logs() {
  static auto* const logs = new CallLogs;
  return *logs;
}

void print_calls_on(int signal) {
  static std::mutex mutex;
  static int chosen = 0;
  const std::lock_guard guard(mutex);
  if (chosen != 0 && chosen != signal)
    throw std::invalid_argument(
        fmt::format("smp: print_calls_on({}): calls are already printed on signal {}; only one "
                    "signal is supported",
                    signal, chosen));
  struct sigaction action {};
  action.sa_sigaction = block_here;
  action.sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK;
  if (sigaction(signal, &action, nullptr) != 0)
    throw std::invalid_argument(fmt::format("smp: print_calls_on({}): no such signal", signal));
  chosen = signal;
  static pid_t owner = 0;
  if (owner == getpid()) return;  // else the first time, or a child, which has no such thread
  owner = getpid();
  block_in_other_threads(signal);
  (void)new system::SignalThread({signal}, print_all);  // it waits as long as the process lives
}

}  // namespace smp::pytorch
