#include "smp/launcher/run/run_status_of.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <array>

#include "smp/launcher/run/run_folder.h"
#include "smp/launcher/run/run_lock.h"
#include "smp/launcher/run/run_status.h"
#include "smp/plan/files/text_file.h"

namespace smp::run {
namespace {

constexpr std::chrono::seconds kFresh{
    15};  // it is written every second, but while hosts are reached

// The lock tells it of a process whose number another one has by now, or of before this host was
// started anew. On another host only the age of what it wrote tells; and here a process may be
// stopped.
run::Watcher watcher_of(const run::RunStatus& status, const std::string& run_dir,
                        std::chrono::system_clock::time_point now) {
  if (run::RunLock::is_left(run_dir)) return run::Watcher::kGone;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  if (status.host == host.data() && kill(static_cast<pid_t>(status.process), 0) != 0 &&
      errno != EPERM)
    return run::Watcher::kGone;
  return now - status.updated < kFresh ? run::Watcher::kRuns : run::Watcher::kSilent;
}

}  // namespace

std::string run_status_of(const std::string& run_dir) {
  const std::string path = run::RunFolder(run_dir).status();
  const run::RunStatus status =
      run::parse_status(path, files::read_text_file(path, "status of a run"));
  const auto now = std::chrono::system_clock::now();
  return run::status_text(status, watcher_of(status, run_dir, now), now);
}

}  // namespace smp::run
