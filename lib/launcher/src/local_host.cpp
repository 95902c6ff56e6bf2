#include "smp/launcher/local_host.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <system_error>

#include "argument_pointers.h"
#include "oom_watch.h"
#include "progress_pages.h"
#include "smp/launcher/descendants.h"
#include "smp/launcher/error_file.h"
#include "spawn.h"

namespace smp {
namespace {

constexpr size_t kReadBytes = 64 << 10;                        // a pipe holds as much
constexpr auto kPatience = std::chrono::milliseconds(10'000);  // for processes that do not die

FileDescriptor checked(int number, const char* what) {
  if (number < 0) throw std::system_error(errno, std::generic_category(), what);
  return FileDescriptor(number);
}

std::string cannot_start(const std::string& program, int error) {
  std::string text = fmt::format("cannot start '{}': {}", program, std::strerror(error));
  const bool looked_up = program.find('/') == std::string::npos;
  if (error == ENOENT && looked_up) {
    text = fmt::format("cannot start '{}': not found in PATH", program);
    if (access(program.c_str(), X_OK) == 0) text += fmt::format(", did you mean './{}'?", program);
  }
  if (error == ENOENT && !looked_up && access(program.c_str(), F_OK) == 0)
    text += " (the file exists: the interpreter in its first line does not)";
  if (error == E2BIG) text += " (arguments and environment together)";
  if (error == EAGAIN) text += " (limit of processes, see ulimit -u)";
  if (error == EMFILE || error == ENFILE) text += " (limit of open files, see ulimit -n)";
  return text;
}

class IgnoreEvents : public HostEvents {
  void on_output(int, Stream, std::string_view, std::chrono::system_clock::time_point) override {}
  void on_ended(int, const ProcessEnd&) override {}
  void on_stopped(int, bool) override {}
  void on_start_failed(int, const std::string&) override {}
  void on_lost(int, const std::string&) override {}
};

void watch(int epoll, int number) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = number;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, number, &event) != 0)
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
}

}  // namespace

LocalHost::LocalHost()
    : oom_watch_(std::make_unique<OomWatch>()), pages_(std::make_unique<ProgressPages>()) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    throw std::system_error(errno, std::generic_category(), "prctl(PR_SET_CHILD_SUBREAPER)");
  null_ = checked(open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null");
  output_ = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  events_ = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &child, &mask_before_);
  child_signals_ = checked(signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd");
  watch(events_.number(), child_signals_.number());
  watch(events_.number(), output_.number());
}

LocalHost::~LocalHost() {
  IgnoreEvents events;
  finish(events);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

std::string LocalHost::name() const {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

void LocalHost::start(int process, const Command& command) {
  const std::string& program = command.arguments.at(0);
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) throw StartError(cannot_start(program, errno));
  FileDescriptor out_read(out[0]), out_write(out[1]);
  if (pipe2(err, O_CLOEXEC) != 0) throw StartError(cannot_start(program, errno));
  FileDescriptor err_read(err[0]), err_write(err[1]);
  fcntl(out_read.number(), F_SETFL, O_NONBLOCK);
  fcntl(err_read.number(), F_SETFL, O_NONBLOCK);

  const std::vector<char*> arguments = pointers(command.arguments);
  std::vector<char*> environment = pointers(command.environment);
  std::string page = pages_->add(process);
  if (!page.empty()) environment.insert(environment.end() - 1, page.data());  // before the null
  ChildSetup setup;
  setup.arguments = arguments.data();
  setup.environment = environment.data();
  setup.in = null_.number();
  setup.out = out_write.number();
  setup.err = err_write.number();
  setup.signal_mask = mask_before_;
  setup.open_files = RaisedFileLimit::before();
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : command.cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &cpus);
  }
  if (!command.cpus.empty()) setup.cpus = &cpus;
  const pid_t pid = spawn(setup);
  if (pid < 0) throw StartError(cannot_start(program, errno));
  process_of_pid_[pid] = {process, command.error_file};
  pid_of_process_[process] = pid;
  open_pipe(process, Stream::kOut, std::move(out_read));
  open_pipe(process, Stream::kErr, std::move(err_read));
}

std::optional<RankProgress> LocalHost::progress(int process) const { return pages_->read(process); }

void LocalHost::open_pipe(int process, Stream stream, FileDescriptor read_end) {
  const int number = read_end.number();
  watch(output_.number(), number);
  pipes_[number] = Pipe{process, stream, std::move(read_end)};
}

pid_t LocalHost::pid_of(int process) const {
  const auto found = pid_of_process_.find(process);
  return found == pid_of_process_.end() ? -1 : found->second;
}

void LocalHost::signal(int process, int signal, SignalScope scope) {
  // Not yet waited for, so neither the number nor its group can be anybody else's.
  const pid_t pid = pid_of(process);
  if (pid > 0) kill(scope == SignalScope::kGroup ? -pid : pid, signal);
}

void LocalHost::hold_output(bool hold) {
  if (hold == held_) return;
  held_ = hold;
  if (hold)
    epoll_ctl(events_.number(), EPOLL_CTL_DEL, output_.number(), nullptr);
  else
    watch(events_.number(), output_.number());
}

void LocalHost::dispatch(HostEvents& events) {
  if (!held_) read_ready_pipes(events);
  signalfd_siginfo info;
  bool child_changed = false;
  while (read(child_signals_.number(), &info, sizeof info) > 0) child_changed = true;
  if (child_changed) reap(events);
}

void LocalHost::read_ready_pipes(HostEvents& events) {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(output_.number(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count; ++i) read_pipe(ready[i].data.fd, events);
}

// True if there may be more. A closed pipe is forgotten.
bool LocalHost::read_pipe(int number, HostEvents& events) {
  std::array<char, kReadBytes> bytes;
  const Pipe& pipe = pipes_.at(number);
  const ssize_t size = read(number, bytes.data(), bytes.size());
  if (size > 0) {
    events.on_output(pipe.process, pipe.stream, {bytes.data(), static_cast<size_t>(size)},
                     std::chrono::system_clock::now());
    return true;
  }
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  // Explicitly: a child between fork and exec may still hold a copy, which keeps it in the set.
  epoll_ctl(output_.number(), EPOLL_CTL_DEL, number, nullptr);
  pipes_.erase(number);
  return false;
}

void LocalHost::reap(HostEvents& events) {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid != 0) {
    const pid_t pid = info.si_pid;
    const int code = info.si_code, status = info.si_status;
    info = {};
    const auto found = process_of_pid_.find(pid);
    if (found == process_of_pid_.end()) continue;  // an orphan that a rank had left
    const int process = found->second.process;
    if (code == CLD_STOPPED || code == CLD_TRAPPED || code == CLD_CONTINUED) {
      events.on_stopped(process, code != CLD_CONTINUED);
      continue;
    }
    ProcessEnd end;
    if (!found->second.error_file.empty())
      end.last_words = read_error_file(found->second.error_file);
    process_of_pid_.erase(found);
    pid_of_process_.erase(process);
    if (code == CLD_EXITED) {
      end.exit_code = status;
    } else {
      end.signal = status;
      end.dumped_core = code == CLD_DUMPED;
      end.out_of_memory = status == SIGKILL && oom_watch_->take_kill();
    }
    events.on_ended(process, end);
  }
}

int LocalHost::finish(HostEvents& events) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kPatience;
  for (const auto& [process, pid] : pid_of_process_) kill(-pid, SIGKILL);
  reap(events);
  while (!process_of_pid_.empty() && Clock::now() < deadline) {
    pollfd child{child_signals_.number(), POLLIN, 0};
    poll(&child, 1, 10);
    signalfd_siginfo info;
    while (read(child_signals_.number(), &info, sizeof info) > 0) {
    }
    reap(events);
  }
  const Sweep sweep = end_descendants({}, process_of_pid_.empty() ? kPatience : kPatience / 10);
  std::vector<int> open;
  for (const auto& [number, pipe] : pipes_) open.push_back(number);
  for (int number : open) {
    while (read_pipe(number, events)) {
    }
  }
  pipes_.clear();
  return sweep.ended;
}

}  // namespace smp
