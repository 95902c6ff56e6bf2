#include "smp/launcher/descendants.h"

#include <dirent.h>
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

#include "smp/launcher/file_descriptor.h"

namespace smp {
namespace {

// Parent of a process, from /proc/<pid>/stat: "pid (name) state ppid ...". The name may hold
// anything, so the fields start behind the last parenthesis. 0 if the process has gone.
pid_t parent_of(const char* pid) {
  FileDescriptor file(open(("/proc/" + std::string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return 0;
  char text[512];
  const ssize_t size = read(file.number(), text, sizeof text - 1);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* fields = std::strrchr(text, ')');
  int parent = 0;
  char state = 0;
  if (fields == nullptr || std::sscanf(fields + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

void pause_for(std::chrono::milliseconds time) {
  timespec left{time.count() / 1000, (time.count() % 1000) * 1000000};
  nanosleep(&left, nullptr);
}

}  // namespace

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (proc == nullptr) return children;
  const pid_t self = getpid();
  while (const dirent* entry = readdir(proc.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (parent_of(entry->d_name) == self) children.push_back(std::atoi(entry->d_name));
  }
  return children;
}

Sweep end_descendants(const std::set<pid_t>& spared, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  auto pause = std::chrono::milliseconds(1);
  std::set<pid_t> killed;
  while (true) {
    if (spared.empty() && waitpid(-1, nullptr, WNOHANG) < 0) break;  // no child at all
    Sweep sweep;
    bool found = false;
    for (pid_t pid : children_of_this_process()) {
      if (spared.count(pid) != 0) continue;
      found = true;
      // A child stays ours until we wait for it, so its number cannot belong to anybody else.
      if (waitpid(pid, nullptr, WNOHANG) != 0) continue;
      kill(pid, SIGKILL);
      killed.insert(pid);
      sweep.left.push_back(pid);
    }
    if (!found && !spared.empty()) break;
    if (std::chrono::steady_clock::now() > deadline) {
      sweep.ended = static_cast<int>(killed.size() - sweep.left.size());
      return sweep;
    }
    pause_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
  return {static_cast<int>(killed.size()), {}};
}

}  // namespace smp
