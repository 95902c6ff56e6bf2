#include "waiting/process_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "smp/plan/system/file_descriptor.h"

namespace smp::waiting {
namespace {

// The letter behind the name, which stands in brackets and may hold any characters; 0: none.
char letter_of(const std::string& path) {
  const system::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t n = file ? read(file.number(), text, sizeof(text)) : -1;
  const std::string_view line(text, n > 0 ? size_t(n) : 0);
  const size_t name_ends = line.rfind(") ");
  return name_ends == std::string_view::npos || name_ends + 2 >= line.size() ? '\0'
                                                                             : line[name_ends + 2];
}

}  // namespace

ProcessState state_of(int32_t process) {
  if (process <= 0) return ProcessState::kUnknown;
  const std::string folder = fmt::format("/proc/{}/task", process);
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir(folder.c_str()), closedir);
  ProcessState state = ProcessState::kUnknown;
  bool is_traced = false;
  while (const dirent* task = tasks ? readdir(tasks.get()) : nullptr) {
    if (task->d_name[0] == '.') continue;
    const char letter = letter_of(fmt::format("{}/{}/stat", folder, task->d_name));
    if (letter == 'T') return ProcessState::kStopped;
    if (letter == 't') is_traced = true;  // a single thread may be so for a moment
    if (letter == 'R') state = ProcessState::kRunnable;
    if ((letter == 'S' || letter == 'D') && state == ProcessState::kUnknown)
      state = ProcessState::kAsleep;
  }
  if (is_traced && state == ProcessState::kUnknown) return ProcessState::kStopped;
  return state;
}

uint64_t own_pid_namespace() {
  struct stat its {};
  return stat("/proc/self/ns/pid", &its) == 0 ? uint64_t(its.st_ino) : 0;
}

}  // namespace smp::waiting
