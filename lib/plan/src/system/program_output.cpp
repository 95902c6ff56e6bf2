#include "smp/plan/system/program_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "smp/plan/system/file_descriptor.h"

namespace smp::system {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void cannot_run(const std::string& program, int error) {
  throw std::runtime_error(fmt::format("{}: {}", program, std::strerror(error)));
}

struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) cannot_run("a pipe", errno);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

pid_t start(const std::vector<std::string>& arguments, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<char*> words;
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) cannot_run(arguments.front(), error);
  return pid;
}

// Reads both until both are closed; false if that takes too long.
bool read_all(int out, int err, ProgramOutput& output, Clock::time_point until) {
  pollfd ends[] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  std::string* const texts[] = {&output.out, &output.err};
  char buffer[4096];
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    if (::poll(ends, 2, static_cast<int>(left.count())) < 0 && errno != EINTR) return false;
    for (int i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || (ends[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      const ssize_t bytes = ::read(ends[i].fd, buffer, sizeof buffer);
      if (bytes > 0) {
        texts[i]->append(buffer, static_cast<size_t>(bytes));
      } else if (bytes == 0 || errno != EINTR) {
        ends[i].fd = -1;
      }
    }
  }
  return true;
}

}  // namespace

ProgramOutput output_of(const std::vector<std::string>& arguments, std::chrono::seconds time) {
  const Clock::time_point until = Clock::now() + time;
  Pipe out = make_pipe(), err = make_pipe();
  const pid_t pid = start(arguments, out.write.number(), err.write.number());
  out.write.reset();
  err.write.reset();
  ProgramOutput output;
  const bool ended = read_all(out.read.number(), err.read.number(), output, until);
  if (!ended) ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    throw std::runtime_error(
        fmt::format("{}: has not ended in {} s", arguments.front(), time.count()));
  }
  output.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return output;
}

std::string program_beside(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "";
  const std::string path = self.parent_path() / name;
  return ::access(path.c_str(), X_OK) == 0 ? path : "";
}

}  // namespace smp::system
