#include "call_logs.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace smp::pytorch {
namespace {

// For the handler, which may touch little else.
std::atomic<int> bell{-1};
std::atomic<pid_t> owner{0};

void ring(int /*signal*/) {
  const int before = errno;
  const uint64_t one = 1;
  if (getpid() == owner.load() && write(bell.load(), &one, sizeof one) < 0) {
  }
  errno = before;
}

void print_whenever_rung(int descriptor) {
  for (uint64_t rings = 0;;) {
    if (read(descriptor, &rings, sizeof rings) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    const std::string text = call_logs().text(kCallsSaid);
    std::fputs(text.empty() ? "smp: no process group has made a call\n" : text.c_str(), stderr);
    std::fflush(stderr);
  }
}

}  // namespace

void CallLogs::add(std::string place, const std::shared_ptr<const CallLog>& log) {
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
        fmt::format("smp: calls are printed on signal {} already, not on {}", chosen, signal));
  if (owner.load() != getpid()) {  // the first time, or in a child, which has no such thread
    const int descriptor = eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0)
      throw std::system_error(errno, std::generic_category(), "smp: cannot wait for a signal");
    bell = descriptor;
    std::thread(print_whenever_rung, descriptor).detach();
    owner = getpid();
  }
  struct sigaction action {};
  action.sa_handler = ring;
  action.sa_flags = SA_RESTART;
  if (sigaction(signal, &action, nullptr) != 0)
    throw std::invalid_argument(
        fmt::format("smp: there is no signal {} to print calls on", signal));
  chosen = signal;
}

}  // namespace smp::pytorch
