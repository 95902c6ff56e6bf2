#include "smp/launcher/local/local_host.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "health/xid.h"
#include "local/progress_pages.h"
#include "local/usage_sampler.h"
#include "process/input_pipe.h"
#include "process/oom_watch.h"
#include "process/rank_cgroup.h"
#include "process/spawn.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/process/descendants.h"
#include "smp/launcher/process/error_file.h"

namespace smp::local {
namespace {

constexpr size_t kReadBytes = 64 << 10;  // the capacity of a pipe
constexpr auto kForWords =
    std::chrono::milliseconds(10'000);  // for the error file of an ended process
constexpr auto kPatience = std::chrono::milliseconds(10'000);  // for processes that do not die

system::FileDescriptor checked(int number, const char* what) {
  if (number < 0) throw std::system_error(errno, std::generic_category(), what);
  return system::FileDescriptor(number);
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

std::vector<std::string> words_of(job::Debugger debugger, pid_t pid) {
  const std::string number = std::to_string(pid);
  if (debugger == job::Debugger::kPySpy) return {"py-spy", "dump", "--pid", number};
  return {"gdb",  "-nx",
          "-q",   "-batch",
          "-iex", "set auto-load python-scripts off",
          "-p",   number,
          "-ex",  "thread apply all bt"};
}

// Uses the PATH of the process, because its debugger may be in the same folder as its program.
std::vector<std::string> variables_for_debugger(pid_t pid) {
  std::vector<std::string> path;
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  for (std::string variable; std::getline(file, variable, '\0');)
    if (variable.starts_with("PATH=")) path = {variable};
  return environment::merged_environment(environment::own_environment(), path);
}

int64_t ms_of(const timeval& time) { return time.tv_sec * 1000 + time.tv_usec / 1000; }

void watch(int epoll, int number, uint32_t events = EPOLLIN) {
  epoll_event event{};
  event.events = events;
  event.data.fd = number;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, number, &event) != 0)
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
}

}  // namespace

struct LocalHost::ReadWords {
  std::string text;
  std::atomic<bool> done{false};
};

LocalHost::LocalHost()
    : oom_watch_(std::make_unique<process::OomWatch>()),
      pages_(std::make_unique<ProgressPages>()),
      spawner_(std::make_unique<process::Spawner>()),
      group_(std::make_unique<process::RankCgroup>(process::RankCgroup::make())),
      xid_watch_(std::make_unique<health::XidWatch>()) {
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
  watch(events_.number(), disk_.event_fd());
  if (xid_watch_->log() >= 0) watch(events_.number(), xid_watch_->log());
}

LocalHost::~LocalHost() {
  job::IgnoredEvents events;
  finish(events);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

std::string LocalHost::name() const {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

void LocalHost::start(int process, const job::Command& command) {
  const std::string& program = command.arguments.at(0);
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) throw job::StartError(cannot_start(program, errno));
  system::FileDescriptor out_read(out[0]), out_write(out[1]);
  if (pipe2(err, O_CLOEXEC) != 0) throw job::StartError(cannot_start(program, errno));
  system::FileDescriptor err_read(err[0]), err_write(err[1]);
  fcntl(out_read.number(), F_SETFL, O_NONBLOCK);
  fcntl(err_read.number(), F_SETFL, O_NONBLOCK);

  int in[2] = {-1, -1};
  if (command.reads_input && pipe2(in, O_CLOEXEC) != 0)
    throw job::StartError(cannot_start(program, errno));
  const system::FileDescriptor in_read(in[0]);
  system::FileDescriptor in_write(in[1]);
  if (command.reads_input) fcntl(in_write.number(), F_SETFL, O_NONBLOCK);

  process::ChildSetup setup;
  setup.arguments = &command.arguments;
  setup.environment = &command.environment;
  setup.variable = pages_->add(process);
  setup.in = command.reads_input ? in_read.number() : null_.number();
  setup.out = out_write.number();
  setup.err = err_write.number();
  setup.signal_mask = mask_before_;
  for (const int number : command.held_signals) sigaddset(&setup.signal_mask, number);
  setup.open_files = process::RaisedFileLimit::before();
  setup.group = group_->folder();
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : command.cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &cpus);
  }
  if (!command.cpus.empty()) setup.cpus = &cpus;
  // spawn() waits for the first process of a program, so that a program that cannot be executed
  // is started only once.
  const pid_t pid = program == proven_program_ ? spawner_->begin(setup) : spawner_->spawn(setup);
  if (pid < 0) throw job::StartError(cannot_start(program, errno));
  proven_program_ = program;
  xid_watch_->add(pid);
  process_of_pid_[pid] = {process, program, command.error_file};
  pid_of_process_[process] = pid;
  if (command.reads_input)
    inputs_[process] = std::make_unique<process::InputPipe>(std::move(in_write));
  if (sampler_ != nullptr) sampler_->add(process, pid);
  open_pipe(process, job::Stream::kOut, std::move(out_read));
  open_pipe(process, job::Stream::kErr, std::move(err_read));
}

std::optional<runinfo::RankProgress> LocalHost::progress(int process) const {
  return pages_->read(process);
}

void LocalHost::sample_usage(std::chrono::milliseconds every) {
  sampler_ = std::make_unique<UsageSampler>(every);
  for (const auto& [process, pid] : pid_of_process_) sampler_->add(process, pid);
}

std::vector<system::HostUsage> LocalHost::take_usage() {
  std::vector<system::HostUsage> samples;
  if (sampler_ == nullptr) return samples;
  if (auto sample = sampler_->take(std::chrono::steady_clock::now())) {
    sample->host = name();
    samples.push_back(std::move(*sample));
  }
  return samples;
}

void LocalHost::open_pipe(int process, job::Stream stream, system::FileDescriptor read_end,
                          bool of_debugger) {
  const int number = read_end.number();
  watch(output_.number(), number);
  pipes_[number] = Pipe{process, stream, std::move(read_end), of_debugger};
}

pid_t LocalHost::pid_of(int process) const {
  const auto found = pid_of_process_.find(process);
  return found == pid_of_process_.end() ? -1 : found->second;
}

void LocalHost::signal(int process, int signal, job::SignalScope scope) {
  // The process was not waited for, so the kernel has not reused its number or its group's number.
  const pid_t pid = pid_of(process);
  if (pid <= 0) return;
  const bool is_permitted = scope == job::SignalScope::kGroup
                                ? process::signal_group(pid, signal)
                                : kill(pid, signal) == 0 || errno != EPERM;
  if (!is_permitted) not_permitted_.emplace(process, false);
}

void LocalHost::give_input(int process, std::string_view bytes) {
  if (const auto found = inputs_.find(process); found != inputs_.end()) found->second->give(bytes);
  watch_input(process);
}

void LocalHost::end_input(int process) {
  if (const auto found = inputs_.find(process); found != inputs_.end()) found->second->end();
  watch_input(process);
}

uint64_t LocalHost::input_taken(int process) const {
  const auto found = inputs_.find(process);
  return found == inputs_.end() ? ~uint64_t{0} : found->second->taken();
}

// Adds a full pipe to the epoll set, which then reports that the pipe has room again.
void LocalHost::watch_input(int process) {
  const auto found = inputs_.find(process);
  if (found == inputs_.end()) return;
  const int number = found->second->number();
  if (!found->second->wants_to_write()) {
    if (full_inputs_.erase(process) != 0 && number >= 0)
      epoll_ctl(events_.number(), EPOLL_CTL_DEL, number, nullptr);
  } else if (full_inputs_.insert(process).second) {
    watch(events_.number(), number, EPOLLOUT);
  }
}

void LocalHost::close_input(int process) {
  const auto found = inputs_.find(process);
  if (found == inputs_.end()) return;
  if (full_inputs_.erase(process) != 0)
    epoll_ctl(events_.number(), EPOLL_CTL_DEL, found->second->number(), nullptr);
  inputs_.erase(found);
}

// Reports the debugger's output as output of the process.
void LocalHost::show_stacks(int process, job::Debugger debugger) {
  const pid_t pid = pid_of(process);
  int ends[2];
  if (pid <= 0 || pipe2(ends, O_CLOEXEC) != 0) return;
  system::FileDescriptor read_end(ends[0]), write_end(ends[1]);
  fcntl(read_end.number(), F_SETFL, O_NONBLOCK);
  const std::vector<std::string> words = words_of(debugger, pid);
  const std::vector<std::string> variables = variables_for_debugger(pid);
  process::ChildSetup setup;
  setup.arguments = &words;
  setup.environment = &variables;
  setup.in = null_.number();
  setup.out = setup.err = write_end.number();
  setup.signal_mask = mask_before_;
  setup.open_files = process::RaisedFileLimit::before();
  if (spawner_->spawn(setup) < 0) {
    const std::string text =
        fmt::format("smp-launch: no stacks: {}\n", cannot_start(words.front(), errno));
    (void)!write(write_end.number(), text.data(), text.size());
  }
  open_pipe(process, job::Stream::kErr, std::move(read_end), true);
}

void LocalHost::hold_output(bool hold) {
  if (hold == held_) return;
  held_ = hold;
  if (hold)
    epoll_ctl(events_.number(), EPOLL_CTL_DEL, output_.number(), nullptr);
  else
    watch(events_.number(), output_.number());
}

void LocalHost::dispatch(job::HostEvents& events) {
  for (auto& [process, is_told] : not_permitted_)
    if (!std::exchange(is_told, true)) events.on_not_permitted(process);
  if (!held_) read_ready_pipes(events);
  for (const int process : std::set<int>(full_inputs_)) {
    inputs_.at(process)->pass_on();
    watch_input(process);
  }
  xid_watch_->read_on();  // while the processes that the log names still exist
  signalfd_siginfo info;
  bool child_changed = false;
  while (read(child_signals_.number(), &info, sizeof info) > 0) child_changed = true;
  if (child_changed) reap(events);
  disk_.forget_done();
  tell_ends(events, kForWords);
}

// Another thread reads the error file, because its file system may hang. Ends are still reported in
// their order.
void LocalHost::take_end(int process, process::ProcessEnd end, const std::string& error_file,
                         job::HostEvents& events) {
  std::shared_ptr<ReadWords> words;
  if (end.failed() && !error_file.empty()) {
    words = std::make_shared<ReadWords>();
    disk_.add(0, [words, path = error_file] {
      words->text = process::read_error_file(path);
      words->done = true;
    });
  }
  if (words == nullptr && ended_.empty()) return events.on_ended(process, end);
  ended_.push_back({process, std::move(end), words, std::chrono::steady_clock::now()});
}

void LocalHost::tell_ends(job::HostEvents& events, std::chrono::milliseconds patience) {
  const auto now = std::chrono::steady_clock::now();
  while (!ended_.empty()) {
    Ended& first = ended_.front();
    if (first.words != nullptr && first.words->done)
      first.end.last_words = std::move(first.words->text);
    else if (first.words != nullptr && now - first.since < patience)
      return;
    const Ended told = std::move(first);
    ended_.pop_front();
    events.on_ended(told.process, told.end);
  }
}

void LocalHost::read_ready_pipes(job::HostEvents& events) {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(output_.number(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count; ++i) read_pipe(ready[i].data.fd, events);
}

// Returns true if the pipe may have more bytes. Forgets a closed pipe.
bool LocalHost::read_pipe(int number, job::HostEvents& events) {
  std::array<char, kReadBytes> bytes;
  const Pipe& pipe = pipes_.at(number);
  const ssize_t size = read(number, bytes.data(), bytes.size());
  if (size > 0) {
    events.on_output(pipe.process, pipe.stream, {bytes.data(), static_cast<size_t>(size)},
                     std::chrono::system_clock::now());
    return true;
  }
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  // A child between fork and exec may hold a copy of the descriptor, which would keep it in the
  // set.
  epoll_ctl(output_.number(), EPOLL_CTL_DEL, number, nullptr);
  const int process = pipe.process;
  const bool shown = pipe.of_debugger;
  pipes_.erase(number);
  if (shown) events.on_stacks_shown(process);
  return false;
}

void LocalHost::reap(job::HostEvents& events) {
  siginfo_t info{};
  rusage usage{};
  // The C library's waitid() does not return the resource usage.
  while (syscall(SYS_waitid, P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG, &usage) ==
             0 &&
         info.si_pid != 0) {
    const pid_t pid = info.si_pid;
    const int code = info.si_code, status = info.si_status;
    info = {};
    const bool ended = code != CLD_STOPPED && code != CLD_TRAPPED && code != CLD_CONTINUED;
    const auto found = process_of_pid_.find(pid);
    if (found == process_of_pid_.end()) {  // an orphan of a rank, or a child of neighbour_
      if (ended && neighbour_ != nullptr)
        neighbour_->on_child_end(
            pid, code == CLD_EXITED ? process::ProcessEnd{status} : process::ProcessEnd{0, status});
      continue;
    }
    const int process = found->second.process;
    if (!ended) {
      events.on_stopped(process, code != CLD_CONTINUED);
      continue;
    }
    process::ProcessEnd end;
    end.pid = pid;
    const std::string program = std::move(found->second.program);
    end.cpu_ms = ms_of(usage.ru_utime) + ms_of(usage.ru_stime);
    end.peak_memory_bytes = usage.ru_maxrss * 1024;
    const std::string error_file = std::move(found->second.error_file);
    process_of_pid_.erase(found);
    pid_of_process_.erase(process);
    close_input(process);
    if (sampler_ != nullptr) sampler_->remove(process);
    if (code != CLD_EXITED || status != 0) {
      if (const auto error = spawner_->take_error(pid)) {
        events.on_start_failed(process, cannot_start(program, *error));
        continue;
      }
      end.gpu_errors = xid_watch_->about(pid);
    }
    if (code == CLD_EXITED) {
      end.exit_code = status;
    } else {
      end.signal = status;
      end.dumped_core = code == CLD_DUMPED;
      end.out_of_memory = status == SIGKILL && oom_watch_->take_kill();
      if (end.out_of_memory) end.memory_limit_bytes = oom_watch_->limit_bytes();
    }
    take_end(process, std::move(end), error_file, events);
  }
}

int LocalHost::finish(job::HostEvents& events) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kPatience;
  size_t others = 0;  // processes that belong to another user now
  for (const auto& [process, pid] : pid_of_process_)
    others += process::signal_group(pid, SIGKILL) ? 0 : 1;
  reap(events);
  while (process_of_pid_.size() > others && Clock::now() < deadline) {
    pollfd child{child_signals_.number(), POLLIN, 0};
    poll(&child, 1, 10);
    events.on_still_finishing();
    signalfd_siginfo info;
    while (read(child_signals_.number(), &info, sizeof info) > 0) {
    }
    reap(events);
  }
  while (!disk_.wait(std::chrono::milliseconds(10)) && Clock::now() < deadline)
    events.on_still_finishing();
  tell_ends(events, {});
  const std::set<pid_t> spared = neighbour_ != nullptr ? neighbour_->children() : std::set<pid_t>{};
  const int in_group = group_->kill();
  const process::Sweep sweep =
      process::end_descendants(spared, process_of_pid_.empty() ? kPatience : kPatience / 10,
                               [&] { events.on_still_finishing(); });
  const auto not_ended = std::count_if(sweep.left.begin(), sweep.left.end(),
                                       [&](pid_t pid) { return process_of_pid_.count(pid) == 0; });
  if (not_ended > 0) events.on_not_ended(static_cast<int>(not_ended));
  std::vector<int> open;
  for (const auto& [number, pipe] : pipes_) open.push_back(number);
  for (int number : open) {
    while (read_pipe(number, events)) {
    }
  }
  pipes_.clear();
  // Processes of the group may have died before the sweep, and others may have left the group.
  return std::max(sweep.ended, in_group);
}

}  // namespace smp::local
