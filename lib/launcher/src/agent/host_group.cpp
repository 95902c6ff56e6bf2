#include "smp/launcher/agent/host_group.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/agent_link.h"
#include "agent/send_window.h"
#include "hosts/host_tree.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/process/disk_thread.h"
#include "smp/launcher/process/watchdog.h"
#include "smp/plan/base/build_id.h"

namespace smp::agent {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kClock = ~uint64_t{0};         // marks the timer among the epoll events
constexpr uint64_t kWay = kClock - 1;             // marks the transport to all hosts
constexpr milliseconds kForOtherFailures{3'000};  // after the first host that cannot be reached
// For each level of agents. An agent waits less for hung processes before it waits for the agents
// below.
constexpr milliseconds kForFinishOfLevel{15'000};
constexpr size_t kListedFailures = 20;

system::FileDescriptor checked(int number, const char* what) {
  if (number < 0) throw std::system_error(errno, std::generic_category(), what);
  return system::FileDescriptor(number);
}

bool is_connecting(const AgentLink& link) { return link.state() == AgentLink::State::kConnecting; }
bool is_open(const std::unique_ptr<AgentLink>& link) {
  return is_connecting(*link) || link->state() == AgentLink::State::kReady;
}

}  // namespace

HostGroup::HostGroup(std::vector<hosts::HostSpec> hosts, reach::AgentTransport& transport,
                     HostGroupOptions options)
    : transport_(transport),
      options_(std::move(options)),
      events_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      clock_(checked(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd")) {
  const auto every =
      std::chrono::nanoseconds(options_.heartbeat_timeout) / reach::HeartbeatMonitor::kIntervals;
  itimerspec time{};
  time.it_interval.tv_sec = every.count() / 1'000'000'000;
  time.it_interval.tv_nsec = every.count() % 1'000'000'000;
  time.it_value = time.it_interval;
  timerfd_settime(clock_.number(), 0, &time, nullptr);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kClock;
  epoll_ctl(events_.number(), EPOLL_CTL_ADD, clock_.number(), &event);
  event.data.u64 = kWay;
  if (const int way = transport_.event_fd(); way >= 0)
    epoll_ctl(events_.number(), EPOLL_CTL_ADD, way, &event);

  WelcomeMessage welcome;
  welcome.build = own_build_id();
  if (options_.runs_here) welcome.folder = std::filesystem::current_path().string();
  welcome.shared = options_.shared;
  welcome.heartbeat_timeout_ms = static_cast<uint32_t>(options_.heartbeat_timeout.count());
  welcome.asks_health = options_.asks_health;
  welcome.asks_topology = options_.asks_topology;
  welcome.usage_ms = static_cast<uint32_t>(options_.usage_interval.count());
  welcome.reserves_port = options_.reserves_port;  // on the first host only
  welcome.fan_out = options_.fan_out;
  welcome.told_signals = options_.ending_signals;
  welcome.transport = options_.transport;
  for (const hosts::Branch& branch : hosts::branches_of(hosts.size(), options_.fan_out)) {
    const auto head = hosts.begin() + static_cast<std::ptrdiff_t>(branch.first);
    welcome.below.assign(head + 1, head + static_cast<std::ptrdiff_t>(branch.count));
    first_host_.push_back(branch.first);
    for (size_t place = 0; place < branch.count; ++place) tree_.push_back({links_.size(), place});
    links_.push_back(std::make_unique<AgentLink>(*head, transport, welcome));
    watched_.emplace_back();
    welcome.reserves_port = false;
    watch(links_.size() - 1);
  }
}

HostGroup::~HostGroup() = default;

void HostGroup::watch_one(int& known, int wanted, uint32_t events, size_t link) {
  if (known == wanted) return;
  // A closed descriptor has left the epoll set by itself, and its number may be in use again.
  if (known >= 0 && wanted < 0) epoll_ctl(events_.number(), EPOLL_CTL_DEL, known, nullptr);
  if (wanted >= 0) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = link;
    epoll_ctl(events_.number(), EPOLL_CTL_ADD, wanted, &event);
  }
  known = wanted;
}

void HostGroup::watch(size_t number) {
  const AgentLink& link = *links_[number];
  Watched& watched = watched_[number];
  watch_one(watched.in, link.channel_in(), EPOLLIN, number);
  watch_one(watched.errors, link.errors(), EPOLLIN, number);
  watch_one(watched.process, link.process(), EPOLLIN, number);
  watch_one(watched.out, link.wants_to_write() ? link.channel_out() : -1, EPOLLOUT, number);
}

size_t HostGroup::unknown_hosts() const {
  size_t count = 0;
  for (const auto& link : links_) count += link->unknown();
  return count;
}

const job::HostLoss& HostGroup::why_not(size_t host) const {
  return links_[tree_[host].link]->places()[tree_[host].place].why_not;
}

const std::string& HostGroup::name_of(size_t host) const {
  return links_[tree_[host].link]->places()[tree_[host].place].name;
}

std::vector<size_t> HostGroup::failed_hosts() const {
  std::vector<size_t> failed;
  for (size_t host = 0; host < tree_.size(); ++host) {
    if (!why_not(host).why.empty()) failed.push_back(host);
  }
  return failed;
}

std::optional<int> HostGroup::connect(int control_fd) {
  job::IgnoredEvents none;
  auto deadline = Clock::now() + options_.connect_timeout;
  bool any_failed = false;
  while (unknown_hosts() > 0 && Clock::now() < deadline) {
    for (const int host : take_news())
      any_failed |= !why_not(static_cast<size_t>(host)).why.empty();
    if (any_failed) deadline = std::min(deadline, Clock::now() + kForOtherFailures);
    pollfd ready[2] = {{events_.number(), POLLIN, 0}, {control_fd, POLLIN, 0}};
    poll(ready, 2, 100);
    if (ready[1].revents != 0) {
      if (const auto number = process::asked_to_end(control_fd, options_.ending_signals))
        return number;
    }
    dispatch(none);
  }
  std::vector<size_t> failed = failed_hosts();
  if (failed.empty() && unknown_hosts() > 0) {  // with failures, silent hosts are not judged
    for (const auto& link : links_)
      link->stop_waiting(
          fmt::format("no answer in {}", hosts::duration_text(options_.connect_timeout)), none);
    failed = failed_hosts();
  }
  if (failed.empty()) return std::nullopt;
  throw_unreachable();
}

void HostGroup::throw_unreachable() const {
  std::vector<std::string> names;
  for (const size_t host : failed_hosts()) {
    if (!why_not(host).through_other) names.push_back(name_of(host));
  }
  throw HostsUnreachable(unreachable_text(), std::move(names));
}

uint64_t HostGroup::files_taken() const {
  uint64_t least = ~uint64_t{0};
  for (const auto& link : links_) {
    if (is_open(link)) least = std::min(least, link->files_taken());
  }
  return least;
}

void HostGroup::forward_files(std::string_view message) {
  for (size_t link = 0; link < links_.size(); ++link) {
    links_[link]->forward_files(message);
    watch(link);
  }
}

std::optional<int> HostGroup::send_files(const std::shared_ptr<FileSource>& files, int control_fd) {
  struct Reading {
    std::optional<std::string> message;
    std::exception_ptr error;
    std::atomic<bool> done{false};
  };
  job::IgnoredEvents none;
  SendWindow window;
  process::DiskThread disk;
  std::shared_ptr<Reading> reading;
  bool over = false;
  while (!over || !window.is_empty()) {
    if (!over && reading == nullptr && window.has_room()) {
      reading = std::make_shared<Reading>();
      disk.add(0, [files, reading] {
        try {
          reading->message = files->next();
        } catch (...) {
          reading->error = std::current_exception();
        }
        reading->done = true;
      });
    }
    pollfd ready[3] = {
        {events_.number(), POLLIN, 0}, {control_fd, POLLIN, 0}, {disk.event_fd(), POLLIN, 0}};
    poll(ready, 3, 100);
    if (ready[1].revents != 0) {
      if (const auto number = process::asked_to_end(control_fd, options_.ending_signals))
        return number;
    }
    disk.forget_done();
    if (reading != nullptr && reading->done) {
      const auto read = std::exchange(reading, nullptr);
      if (read->error) std::rethrow_exception(read->error);
      over = !read->message;
      if (!over) {
        forward_files(*read->message);
        window.sent(read->message->size());
      }
    }
    dispatch(none);
    if (!failed_hosts().empty()) throw_unreachable();
    window.taken(files_taken());
  }
  return std::nullopt;
}

std::string HostGroup::unreachable_text() const {
  std::string lines;
  const std::vector<size_t> failed = failed_hosts();
  for (size_t i = 0; i < failed.size() && i < kListedFailures; ++i)
    lines += fmt::format("\n  host {}: {}", name_of(failed[i]), why_not(failed[i]).why);
  if (const size_t silent = unknown_hosts(); silent > 0)
    lines += fmt::format("\n  and {} had not answered yet", silent);
  if (failed.size() > kListedFailures)
    lines += fmt::format("\n  and {} more", failed.size() - kListedFailures);
  return fmt::format("{} of {} host{} could not be used:{}", failed.size(), tree_.size(),
                     tree_.size() == 1 ? "" : "s", lines);
}

HostFacts HostGroup::about(int host) const {
  const TreePlace at = tree_.at(static_cast<size_t>(host));
  const AgentLink::Place& place = links_[at.link]->places()[at.place];
  const ReadyMessage message = place.about.value_or(ReadyMessage{});
  return {message.name,      message.cpus,        message.port,
          message.addresses, message.network,     message.reached_at,
          message.health,    place.clock_skew_ms, message.topology};
}

job::HostLoss HostGroup::why_not_reached(int host) const {
  const TreePlace at = tree_.at(static_cast<size_t>(host));
  const AgentLink::Place& place = links_[at.link]->places()[at.place];
  return place.known() ? place.why_not : job::HostLoss{"it had not answered yet"};
}

std::vector<int> HostGroup::take_news() {
  std::vector<int> hosts;
  for (size_t link = 0; link < links_.size(); ++link) {
    for (const size_t place : links_[link]->take_news())
      hosts.push_back(static_cast<int>(first_host_[link] + place));
  }
  return hosts;
}

std::string HostGroup::ready_bytes(int host) const {
  const TreePlace at = tree_.at(static_cast<size_t>(host));
  return encode(*links_[at.link]->places()[at.place].about);
}

void HostGroup::place(int process, int host) {
  const auto number = static_cast<size_t>(process);
  if (number >= host_of_.size()) host_of_.resize(number + 1, -1);
  host_of_[number] = host;
}

AgentLink& HostGroup::link_of(int process) const {
  const int host = host_of_.at(static_cast<size_t>(process));
  return *links_[tree_.at(static_cast<size_t>(host)).link];
}

std::string HostGroup::name() const {
  return fmt::format("{} host{}", tree_.size(), tree_.size() == 1 ? "" : "s");
}

void HostGroup::start(int process, const job::Command& command) {
  const TreePlace at = tree_.at(static_cast<size_t>(host_of_.at(static_cast<size_t>(process))));
  links_[at.link]->start(process, at.place, command);
  watch(at.link);
}

void HostGroup::show_stacks(int process, job::Debugger debugger) {
  const TreePlace at = tree_.at(static_cast<size_t>(host_of_.at(static_cast<size_t>(process))));
  links_[at.link]->show_stacks(process, debugger);
  watch(at.link);
}

void HostGroup::give_input(int process, std::string_view bytes) {
  const TreePlace at = tree_.at(static_cast<size_t>(host_of_.at(static_cast<size_t>(process))));
  links_[at.link]->give_input(process, bytes);
  watch(at.link);
}

uint64_t HostGroup::input_taken(int process) const { return link_of(process).input_taken(process); }

void HostGroup::signal(int process, int signal, job::SignalScope scope) {
  const TreePlace at = tree_.at(static_cast<size_t>(host_of_.at(static_cast<size_t>(process))));
  links_[at.link]->signal(process, signal, scope);
  watch(at.link);
}

void HostGroup::hold_output(bool hold) {
  if (hold == held_) return;
  held_ = hold;
  for (size_t link = 0; link < links_.size(); ++link) {
    links_[link]->hold_output(hold);
    watch(link);
  }
}

void HostGroup::dispatch(job::HostEvents& events) {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(events_.number(), ready.data(), ready.size(), 0);
  bool all = false;
  for (int i = 0; i < count; ++i) {
    if (ready[static_cast<size_t>(i)].data.u64 == kClock) {
      uint64_t ticks = 0;
      all = read(clock_.number(), &ticks, sizeof ticks) > 0 || all;
      continue;
    }
    if (ready[static_cast<size_t>(i)].data.u64 == kWay) {
      transport_.dispatch();
      all = true;
      continue;
    }
    const size_t link = ready[static_cast<size_t>(i)].data.u64;
    links_[link]->dispatch(events);
    watch(link);
  }
  for (size_t link = 0; all && link < links_.size(); ++link) {
    links_[link]->dispatch(events);
    watch(link);
  }
}

std::optional<runinfo::RankProgress> HostGroup::progress(int process) const {
  return link_of(process).progress(process);
}

std::vector<system::HostUsage> HostGroup::take_usage() {
  std::vector<system::HostUsage> all;
  for (const auto& link : links_) {
    for (system::HostUsage& usage : link->take_usage()) all.push_back(std::move(usage));
  }
  return all;
}

void HostGroup::begin_finish() {
  for (size_t link = 0; link < links_.size(); ++link) {
    links_[link]->finish();
    watch(link);
  }
}

int HostGroup::finish(job::HostEvents& events) {
  const auto deadline =
      Clock::now() + kForFinishOfLevel * hosts::levels_of(tree_.size(), options_.fan_out);
  begin_finish();
  while (std::any_of(links_.begin(), links_.end(), is_open) && Clock::now() < deadline) {
    pollfd ready{events_.number(), POLLIN, 0};
    poll(&ready, 1, 100);
    dispatch(events);
    events.on_still_finishing();
  }
  int left_behind = 0;
  for (const auto& link : links_) left_behind += link->left_behind();
  return left_behind;
}

bool HostGroup::heard_since(int process, Clock::time_point time) const {
  const AgentLink& link = link_of(process);
  // A relaying agent notices the loss of a host below only after the heartbeat time-out.
  if (link.runs_below(process)) time += options_.heartbeat_timeout;
  return link.state() != AgentLink::State::kReady || link.heard_at() > time;
}

std::set<pid_t> HostGroup::children() const {
  std::set<pid_t> children;
  for (const auto& link : links_) {
    if (link->pid() > 0) children.insert(link->pid());
  }
  return children;
}

void HostGroup::on_child_end(pid_t child, const process::ProcessEnd& end) {
  for (size_t link = 0; link < links_.size(); ++link) {
    if (links_[link]->pid() != child) continue;
    links_[link]->on_process_end(end);
    return watch(link);
  }
}

}  // namespace smp::agent
