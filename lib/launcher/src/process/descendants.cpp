#include "smp/launcher/process/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "smp/plan/system/file_descriptor.h"

namespace smp::process {

// Reads /proc/<pid>/stat: "pid (name) state ppid pgrp session ...". The name may have any
// characters, so the fields start after the last parenthesis.
Kin kin_of(const std::string& folder) {
  system::FileDescriptor file(open((folder + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  char text[512];
  const ssize_t size = read(file.number(), text, sizeof text - 1);
  if (size <= 0) return {};
  text[size] = '\0';
  const char* fields = std::strrchr(text, ')');
  Kin kin;
  char state = 0;
  if (fields == nullptr ||
      std::sscanf(fields + 1, " %c %d %*d %d", &state, &kin.parent, &kin.session) != 3)
    return {};
  kin.dead = state == 'Z' || state == 'X';
  return kin;
}

namespace {

template <typename Wanted>
std::vector<pid_t> processes(const Wanted& wanted) {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (proc == nullptr) return found;
  while (const dirent* entry = readdir(proc.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (wanted(kin_of(std::string("/proc/") + entry->d_name)))
      found.push_back(std::atoi(entry->d_name));
  }
  return found;
}

void pause_for(std::chrono::milliseconds time) {
  timespec left{time.count() / 1000, (time.count() % 1000) * 1000000};
  nanosleep(&left, nullptr);
}

}  // namespace

std::vector<pid_t> children_of_this_process() {
  // Most processes have no children, and listing all processes is slow on large machines.
  siginfo_t info{};
  if (waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT | __WALL) != 0 &&
      errno == ECHILD)
    return {};
  const pid_t self = getpid();
  return processes([&](const Kin& kin) { return kin.parent == self; });
}

void end_session(pid_t session, std::chrono::milliseconds patience) {
  const auto members = [&] {
    return processes([&](const Kin& kin) { return kin.session == session && !kin.dead; });
  };
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::vector<pid_t> left = members();
  for (const pid_t pid : left) kill(pid, SIGTERM);
  while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
    pause_for(std::chrono::milliseconds(20));
    left = members();
  }
  for (const pid_t pid : left) kill(pid, SIGKILL);
}

Sweep end_descendants(const std::set<pid_t>& spared, std::chrono::milliseconds patience,
                      const std::function<void()>& on_wait) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  auto pause = std::chrono::milliseconds(1);
  std::set<pid_t> killed;
  while (true) {
    if (spared.empty() && waitpid(-1, nullptr, WNOHANG) < 0) break;  // no child at all
    Sweep sweep;
    bool found = false;
    for (pid_t pid : children_of_this_process()) {
      if (spared.count(pid) != 0) continue;
      // The kernel does not reuse the number of a child before waitpid().
      const bool has_ended = waitpid(pid, nullptr, WNOHANG) != 0;
      if (!has_ended) sweep.left.push_back(pid);
      if (!has_ended && kill(pid, SIGKILL) != 0 && errno == EPERM)
        continue;  // belongs to another user now
      found = true;
      if (!has_ended) killed.insert(pid);
    }
    const bool none_can_be_ended = !found && !(spared.empty() && sweep.left.empty());
    if (none_can_be_ended || std::chrono::steady_clock::now() > deadline) {
      for (const pid_t pid : sweep.left) killed.erase(pid);
      sweep.ended = static_cast<int>(killed.size());
      return sweep;
    }
    on_wait();
    pause_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
  return {static_cast<int>(killed.size()), {}};
}

}  // namespace smp::process
