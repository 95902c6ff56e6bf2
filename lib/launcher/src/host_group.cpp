#include "smp/launcher/host_group.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "agent_link.h"
#include "build_id.h"
#include "smp/launcher/duration.h"
#include "smp/launcher/guard.h"
#include "smp/plan/errors.h"

namespace smp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kClock = ~uint64_t{0};         // marks the timer among the links
constexpr milliseconds kForOtherFailures{3'000};  // behind the first host that cannot be reached
constexpr milliseconds kForFinish{15'000};        // longer than an agent waits for hung processes
constexpr size_t kListedFailures = 20;

FileDescriptor checked(int number, const char* what) {
  if (number < 0) throw std::system_error(errno, std::generic_category(), what);
  return FileDescriptor(number);
}

bool is_connecting(const AgentLink& link) { return link.state() == AgentLink::State::kConnecting; }
bool is_lost(const AgentLink& link) { return link.state() == AgentLink::State::kLost; }
bool is_open(const AgentLink& link) {
  return is_connecting(link) || link.state() == AgentLink::State::kReady;
}

class NoEvents : public HostEvents {
  void on_output(int, Stream, std::string_view, std::chrono::system_clock::time_point) override {}
  void on_ended(int, const ProcessEnd&) override {}
  void on_stopped(int, bool) override {}
  void on_start_failed(int, const std::string&) override {}
  void on_lost(int, const std::string&) override {}
};

}  // namespace

HostGroup::HostGroup(std::vector<HostSpec> hosts, Transport& transport, HostGroupOptions options)
    : options_(options),
      watched_(hosts.size()),
      events_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      clock_(checked(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd")) {
  const auto every = std::chrono::nanoseconds(options_.silence) / SilenceWatch::kIntervals;
  itimerspec time{};
  time.it_interval.tv_sec = every.count() / 1'000'000'000;
  time.it_interval.tv_nsec = every.count() % 1'000'000'000;
  time.it_value = time.it_interval;
  timerfd_settime(clock_.number(), 0, &time, nullptr);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kClock;
  epoll_ctl(events_.number(), EPOLL_CTL_ADD, clock_.number(), &event);

  WelcomeMessage welcome;
  welcome.build = own_build_id();
  welcome.folder = std::filesystem::current_path().string();
  welcome.silence_ms = static_cast<uint32_t>(options_.silence.count());
  welcome.asks_health = options_.asks_health;
  welcome.asks_topology = options_.asks_topology;
  welcome.reserves_port = true;  // on the first host alone
  for (HostSpec& host : hosts) {
    links_.push_back(std::make_unique<AgentLink>(std::move(host), transport, welcome));
    welcome.reserves_port = false;
    watch(links_.size() - 1);
  }
}

HostGroup::~HostGroup() = default;

void HostGroup::watch_one(int& known, int wanted, uint32_t events, size_t host) {
  if (known == wanted) return;
  // A descriptor that was closed has left the epoll by itself, and its number may be another's now.
  if (known >= 0 && wanted < 0) epoll_ctl(events_.number(), EPOLL_CTL_DEL, known, nullptr);
  if (wanted >= 0) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = host;
    epoll_ctl(events_.number(), EPOLL_CTL_ADD, wanted, &event);
  }
  known = wanted;
}

void HostGroup::watch(size_t host) {
  const AgentLink& link = *links_[host];
  Watched& watched = watched_[host];
  watch_one(watched.in, link.channel_in(), EPOLLIN, host);
  watch_one(watched.errors, link.errors(), EPOLLIN, host);
  watch_one(watched.process, link.process(), EPOLLIN, host);
  watch_one(watched.out, link.wants_to_write() ? link.channel_out() : -1, EPOLLOUT, host);
}

size_t HostGroup::links_that(bool (*holds)(const AgentLink& link)) const {
  return static_cast<size_t>(
      std::count_if(links_.begin(), links_.end(), [&](const auto& link) { return holds(*link); }));
}

std::optional<int> HostGroup::connect(int control_fd) {
  NoEvents none;
  auto deadline = Clock::now() + options_.connect_timeout;
  while (links_that(is_connecting) > 0 && Clock::now() < deadline) {
    if (links_that(is_lost) > 0) deadline = std::min(deadline, Clock::now() + kForOtherFailures);
    pollfd ready[2] = {{events_.number(), POLLIN, 0}, {control_fd, POLLIN, 0}};
    poll(ready, 2, 100);
    if (ready[1].revents != 0) {
      if (const auto number = asked_to_end(control_fd)) return number;
    }
    dispatch(none);
  }
  if (links_that(is_lost) == 0) {  // else those that have not answered yet are not judged
    for (const auto& link : links_) {
      if (is_connecting(*link))
        link->give_up(fmt::format("no answer in {}", text_of(options_.connect_timeout)), none);
    }
  }
  if (links_that(is_lost) == 0) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& link : links_) {
    if (is_lost(*link)) names.push_back(link->host().name);
  }
  throw HostsUnreachable(unreachable_text(), std::move(names));
}

std::string HostGroup::unreachable_text() const {
  std::string lines;
  size_t lost = 0;
  for (const auto& link : links_) {
    if (!is_lost(*link)) continue;
    if (++lost <= kListedFailures)
      lines += fmt::format("\n  host {}: {}", link->host().name, link->why());
  }
  if (const size_t silent = links_that(is_connecting); silent > 0)
    lines += fmt::format("\n  and {} had not answered yet", silent);
  if (lost > kListedFailures) lines += fmt::format("\n  and {} more", lost - kListedFailures);
  return fmt::format("{} of {} host{} could not be used:{}", lost, links_.size(),
                     links_.size() == 1 ? "" : "s", lines);
}

HostFacts HostGroup::about(int host) const {
  const ReadyMessage& message = links_.at(static_cast<size_t>(host))->about();
  return {message.name,    message.cpus,
          message.port,    message.addresses,
          message.network, message.reached_at,
          message.health,  links_.at(static_cast<size_t>(host))->clock_skew_ms(),
          message.topology};
}

std::string HostGroup::why_not_reached(int host) const {
  const AgentLink& link = *links_.at(static_cast<size_t>(host));
  if (is_connecting(link)) return "it had not answered yet";
  return is_lost(link) ? link.why() : "";
}

AgentLink& HostGroup::link_of(int process) const {
  return *links_.at(static_cast<size_t>(host_of_.at(static_cast<size_t>(process))));
}

std::string HostGroup::name() const {
  return fmt::format("{} host{}", links_.size(), links_.size() == 1 ? "" : "s");
}

void HostGroup::start(int process, const Command& command) {
  link_of(process).start(process, command);
  watch(static_cast<size_t>(host_of_[static_cast<size_t>(process)]));
}

void HostGroup::signal(int process, int signal, SignalScope scope) {
  link_of(process).signal(process, signal, scope);
  watch(static_cast<size_t>(host_of_[static_cast<size_t>(process)]));
}

void HostGroup::hold_output(bool hold) {
  if (hold == held_) return;
  held_ = hold;
  for (size_t host = 0; host < links_.size(); ++host) {
    links_[host]->hold_output(hold);
    watch(host);
  }
}

void HostGroup::dispatch(HostEvents& events) {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(events_.number(), ready.data(), ready.size(), 0);
  bool all = false;
  for (int i = 0; i < count; ++i) {
    if (ready[static_cast<size_t>(i)].data.u64 == kClock) {
      uint64_t ticks = 0;
      all = read(clock_.number(), &ticks, sizeof ticks) > 0;
      continue;
    }
    const size_t host = ready[static_cast<size_t>(i)].data.u64;
    links_[host]->dispatch(events);
    watch(host);
  }
  for (size_t host = 0; all && host < links_.size(); ++host) {
    links_[host]->dispatch(events);
    watch(host);
  }
}

std::optional<RankProgress> HostGroup::progress(int process) const {
  return link_of(process).progress(process);
}

int HostGroup::finish(HostEvents& events) {
  const auto deadline = Clock::now() + kForFinish;
  for (size_t host = 0; host < links_.size(); ++host) {
    links_[host]->finish();
    watch(host);
  }
  while (links_that(is_open) > 0 && Clock::now() < deadline) {
    pollfd ready{events_.number(), POLLIN, 0};
    poll(&ready, 1, 100);
    dispatch(events);
  }
  int left_behind = 0;
  for (const auto& link : links_) left_behind += link->left_behind();
  return left_behind;
}

bool HostGroup::heard_since(int process, Clock::time_point time) const {
  const AgentLink& link = link_of(process);
  return link.state() != AgentLink::State::kReady || link.heard_at() > time;
}

std::string address_of(const HostSpec& host, const HostFacts& facts, const std::string& interface) {
  if (!interface.empty()) {
    for (const std::string& address : facts.addresses) {
      const size_t equals = address.find('=');
      if (address.substr(0, equals) == interface) return address.substr(equals + 1);
    }
    throw ConfigError(fmt::format(
        "--interface '{}': host {} has no address there; it has {}", interface, host.name,
        facts.addresses.empty() ? "none" : fmt::format("{}", fmt::join(facts.addresses, ", "))));
  }
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, host.name.c_str(), bytes.data()) == 1) return host.name;
  }
  const auto is_loopback = [](const std::string& address) {
    return address.starts_with("127.") || address == "::1";
  };
  // An agent that a command of ours started sees the variables of our own login, not of its host.
  const bool is_its_own =
      std::any_of(facts.addresses.begin(), facts.addresses.end(), [&](const std::string& address) {
        return address.substr(address.find('=') + 1) == facts.reached_at;
      });
  if (is_its_own && !is_loopback(facts.reached_at)) return facts.reached_at;
  if (facts.addresses.empty())
    throw ConfigError(fmt::format("host {} has no address that other hosts can reach", host.name));
  return facts.addresses.front().substr(facts.addresses.front().find('=') + 1);
}

}  // namespace smp
