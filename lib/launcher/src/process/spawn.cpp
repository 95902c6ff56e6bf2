#include "process/spawn.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <paths.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "process/child_program.h"
#include "smp/launcher/environment/variables.h"

namespace smp::process {
namespace {

constexpr size_t kStackBytes = 16 << 10;  // the child needs less than a page

// The candidates that execvpe() would try, but with the PATH of the program's environment. The PATH
// of this process can differ, for example in an agent that ssh has started.
std::vector<std::string> paths_of(const std::string& program,
                                  const std::vector<std::string>& environment) {
  if (program.empty()) return {};
  if (program.find('/') != std::string::npos) return {program};
  const std::optional<std::string> variable = environment::value_in(environment, "PATH");
  std::string_view folders = variable ? *variable : std::string_view("/bin:/usr/bin");
  std::vector<std::string> paths;
  while (true) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const std::string folder(folders.substr(0, end));
    paths.push_back(folder.empty() ? program : folder + "/" + program);
    if (end == folders.size()) return paths;
    folders.remove_prefix(end + 1);
  }
}

size_t bytes_of(const std::vector<std::string>& texts) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size() + 1;
  return bytes;
}

// A group may take no more processes, because it was removed or has controllers now. The process
// then starts outside the group.
bool is_refused_by_group(long error) {
  return error == EBADF || error == EBUSY || error == ENODEV || error == ENOENT ||
         error == EOPNOTSUPP;
}

}  // namespace

// The memory that a child reads, and its stack.
struct Spawner::Child {
  void load(const ChildSetup& setup);
  void add(std::string_view text);
  char** end_list(size_t begin);
  long clone_into(int group);  // the pid, or a negative errno
  bool is_vacant() const { return shares_memory == 0 && program.error == 0; }

  alignas(16) std::byte stack[kStackBytes];
  ChildProgram program;
  std::atomic<int> shares_memory{0};  // the kernel sets it to 0 and wakes waiters
  pid_t pid = 0;
  cpu_set_t cpus;
  std::string text;          // all words, each zero-terminated
  std::vector<char*> words;  // the lists, each with a null pointer at its end
};

// The text must not grow beyond its reserved size, or the pointers into it become invalid.
void Spawner::Child::add(std::string_view word) {
  words.push_back(text.data() + text.size());
  text.append(word).push_back('\0');
}

char** Spawner::Child::end_list(size_t begin) {
  words.push_back(nullptr);
  return words.data() + begin;
}

void Spawner::Child::load(const ChildSetup& setup) {
  const std::vector<std::string>& arguments = *setup.arguments;
  const std::vector<std::string> paths = paths_of(arguments.at(0), *setup.environment);
  text.clear();
  text.reserve(bytes_of(paths) + bytes_of(arguments) + bytes_of(*setup.environment) +
               setup.variable.size() + std::string_view(_PATH_BSHELL).size() + 2);
  words.clear();
  words.reserve(paths.size() + 2 * arguments.size() + setup.environment->size() + 7);

  for (const std::string& path : paths) add(path);
  program.paths = end_list(0);
  const size_t first_argument = words.size();
  for (const std::string& argument : arguments) add(argument);
  program.arguments = end_list(first_argument);
  const size_t first_variable = words.size();
  for (const std::string& variable : *setup.environment) add(variable);
  if (!setup.variable.empty()) add(setup.variable);
  program.environment = end_list(first_variable);
  const size_t shell = words.size();
  add(_PATH_BSHELL);
  words.push_back(nullptr);
  words.insert(words.end(), program.arguments + 1, program.arguments + arguments.size());
  program.shell_arguments = end_list(shell);

  program.in = setup.in;
  program.out = setup.out;
  program.err = setup.err;
  program.parent = getpid();
  program.signal_mask = setup.signal_mask;
  program.open_files = setup.open_files;
  if (setup.cpus != nullptr) cpus = *setup.cpus;
  program.cpus = setup.cpus != nullptr ? &cpus : nullptr;
}

// clone() works in every container, but cannot start the child in a group. clone3() can.
long Spawner::Child::clone_into(int group) {
  constexpr uint64_t kShares = CLONE_VM | CLONE_CHILD_CLEARTID;
  if (group < 0)
    return clone_to_become(kShares | SIGCHLD, stack + kStackBytes, &shares_memory, &program);
  clone_args wanted = {};
  wanted.flags = kShares | CLONE_INTO_CGROUP;
  wanted.exit_signal = SIGCHLD;
  wanted.child_tid = reinterpret_cast<uintptr_t>(&shares_memory);
  wanted.stack = reinterpret_cast<uintptr_t>(stack);
  wanted.stack_size = kStackBytes;
  wanted.cgroup = static_cast<uint64_t>(group);
  return clone3_to_become(&wanted, sizeof wanted, &program);
}

Spawner::Spawner() = default;

Spawner::~Spawner() {
  for (std::unique_ptr<Child>& child : children_) {
    if (child->shares_memory != 0) (void)child.release();
  }
}

// Tries the oldest child first, because it has most likely executed its program.
Spawner::Child& Spawner::vacant_child() {
  if (!children_.empty() && children_.front()->is_vacant()) {
    children_.push_back(std::move(children_.front()));
    children_.pop_front();
  } else {
    children_.push_back(std::make_unique_for_overwrite<Child>());
  }
  return *children_.back();
}

pid_t Spawner::begin(const ChildSetup& setup) {
  Child& child = vacant_child();
  child.load(setup);
  child.shares_memory = 1;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  long result = child.clone_into(setup.group);
  if (setup.group >= 0 && is_refused_by_group(-result)) result = child.clone_into(-1);
  child.pid = static_cast<pid_t>(result);
  if (result < 0) child.shares_memory = 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (result >= 0) return child.pid;
  errno = static_cast<int>(-result);
  return -1;
}

pid_t Spawner::spawn(const ChildSetup& setup) {
  const pid_t pid = begin(setup);
  if (pid < 0) return -1;
  Child& child = *children_.back();
  while (child.shares_memory != 0)
    syscall(SYS_futex, &child.shares_memory, FUTEX_WAIT, 1, nullptr, nullptr, 0);
  const std::optional<int> error = take_error(pid);
  if (!error) return pid;
  waitpid(pid, nullptr, 0);
  errno = *error;
  return -1;
}

std::optional<int> Spawner::take_error(pid_t pid) {
  for (const std::unique_ptr<Child>& child : children_) {
    if (child->pid != pid || child->program.error == 0) continue;
    const int error = child->program.error;
    child->program.error = 0;
    return error;
  }
  return std::nullopt;
}

// A new child leads no process group before its setsid(), so ESRCH means to signal it alone.
bool signal_group(pid_t pid, int signal) {
  if (kill(-pid, signal) == 0) return true;
  return (errno == ESRCH && kill(pid, signal) == 0) || errno != EPERM;
}

}  // namespace smp::process
