#include "smp/launcher/mpirun_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <system_error>

#include "host_addresses.h"
#include "smp/launcher/agent.h"
#include "smp/launcher/descendants.h"
#include "smp/launcher/duration.h"
#include "smp/launcher/outer_launcher.h"
#include "smp/launcher/rank_environment.h"
#include "smp/launcher/report.h"
#include "smp/launcher/shell_words.h"
#include "smp/plan/errors.h"
#include "smp/plan/random_hex.h"

namespace smp {
namespace {

using std::chrono::milliseconds;

// On no command line: mpirun passes the value on by itself.
constexpr const char* kKeyVariable = "SMP_MEETING_KEY";
constexpr int kKeyBytes = 32;
constexpr milliseconds kForEnd{2'000};  // of mpirun, when the agents have ended, or it was asked to
constexpr milliseconds kForAgent{30'000};
constexpr size_t kShownBytes = 400;  // of what mpirun said
constexpr size_t kKeptBytes = 8 << 10;
constexpr size_t kListedHosts = 20;

MeetingPlace place_for(const std::vector<HostSpec>& hosts, const std::string& at) {
  if (!at.empty()) return parse_meeting_place("--rendezvous", at);
  std::string unknown, own;  // the first of each
  for (const HostSpec& host : hosts) {
    const std::string address = own_address_towards(host.name);
    // Many a host has its own name at 127.0.1.1, where no other one would find it.
    if (!address.empty() && (hosts.size() == 1 || !is_loopback(address))) return {address, 0};
    std::string& first = address.empty() ? unknown : own;
    if (first.empty()) first = host.name;
  }
  throw ConfigError(fmt::format(
      "--via mpirun: '{}' is {}, so the agents do not know where to come: give an address of this "
      "host, as in --rendezvous 10.0.0.1:29400",
      unknown.empty() ? own : unknown,
      unknown.empty() ? "known here by a loopback address alone" : "no name that is known here"));
}

// MPICH's mpirun, and Intel's, are Hydra, which has words of its own. One that cannot be asked is
// not started either, which tells why.
bool is_hydra() {
  FILE* const pipe = popen("timeout 10 mpirun --version 2>&1", "re");
  if (pipe == nullptr) return false;
  std::string text;
  std::array<char, 4096> bytes;
  while (const size_t size = fread(bytes.data(), 1, bytes.size(), pipe))
    text.append(bytes.data(), size);
  pclose(pipe);
  return text.find("HYDRA") != text.npos || text.find("Intel(R) MPI") != text.npos;
}

const std::vector<HostSpec>& with_names_alone(const std::vector<HostSpec>& hosts) {
  for (const HostSpec& host : hosts) {
    if (!host.user.empty() || host.port != 0)
      throw ConfigError(
          fmt::format("--via mpirun takes names alone: the user and the port of host '{}' belong "
                      "into ssh's configuration",
                      host.name));
  }
  return hosts;
}

}  // namespace

MpirunTransport::MpirunTransport(const std::vector<HostSpec>& hosts, const MpirunOptions& options)
    : hosts_(with_names_alone(hosts)),
      options_(options),
      is_hydra_(is_hydra()),
      key_(random_hex(kKeyBytes)),
      meeting_(place_for(hosts, options.at), key_),
      events_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!events_.is_open()) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  mpirun_ = Transport::open(hosts_.front());
  watch();
}

void MpirunTransport::watch() {
  for (const FileDescriptor* one : {&mpirun_.in, &mpirun_.errors, &mpirun_.process}) {
    fcntl(one->number(), F_SETFL, fcntl(one->number(), F_GETFL) | O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    epoll_ctl(events_.number(), EPOLL_CTL_ADD, one->number(), &event);
  }
}

// Whoever is done with is closed, and leaves the epoll so.
void MpirunTransport::dispatch() {
  siginfo_t info{};
  if (mpirun_.process.is_open() &&
      waitid(P_PID, static_cast<id_t>(mpirun_.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid != 0) {
    end_.emplace();
    (info.si_code == CLD_EXITED ? end_->exit_code : end_->signal) = info.si_status;
    mpirun_.process.reset();
  }
  std::array<char, 4096> bytes;
  for (FileDescriptor* stream : {&mpirun_.in, &mpirun_.errors}) {
    ssize_t size = -1;
    while (stream->is_open() && (size = read(stream->number(), bytes.data(), bytes.size())) > 0) {
      const size_t room = kKeptBytes - std::min(kKeptBytes, said_.size());
      said_.append(bytes.data(), std::min(room, static_cast<size_t>(size)));
    }
    if (size == 0) stream->reset();
  }
}

std::string MpirunTransport::why_way_ended() const {
  return end_ ? fmt::format("mpirun {}: {}", text_of(*end_), words()) : "";
}

bool MpirunTransport::ends_in_time() {
  const auto deadline = std::chrono::steady_clock::now() + kForEnd;
  while (!end_ && std::chrono::steady_clock::now() < deadline) {
    pollfd ready{events_.number(), POLLIN, 0};
    poll(&ready, 1, 50);
    dispatch();
  }
  return end_.has_value();
}

// Agents whose connection ends leave by themselves, and mpirun with the last of them. One that
// still reaches hosts is asked; its ssh processes outlive it, each in a group of its own, but in
// its session.
MpirunTransport::~MpirunTransport() {
  if (mpirun_.pid < 0) return;
  const bool had_come = !channels_.empty();
  channels_.clear();
  meeting_.close();
  mpirun_.out.reset();
  if (!had_come || !ends_in_time()) {
    if (!end_) kill(mpirun_.pid, SIGTERM);
    if (!ends_in_time()) kill(mpirun_.pid, SIGKILL);
    while (!ends_in_time()) continue;
  }
  end_session(mpirun_.pid, kForEnd);
  waitpid(mpirun_.pid, nullptr, 0);  // not before: the session's number is nobody else's until then
}

std::string MpirunTransport::place() const {
  const bool is_v6 = meeting_.address().find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", meeting_.address(), is_v6 ? "]" : "",
                     meeting_.port());
}

// Open MPI numbers processes as it likes where it chooses their hosts, so each host has a context
// of its own, whose agent is told its place. What mpirun is told counts for one context alone, or
// for all where the first one says it: all say it. Hydra has contexts too, but takes hosts, in
// order, and all else for the whole job alone.
Command MpirunTransport::command_for(const HostSpec&) const {
  const std::vector<std::string> arguments = words_of_command("--mpirun-args", options_.arguments);
  std::vector<std::string> words = {"mpirun"};
  const auto add = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (is_hydra_) {
    std::vector<std::string> names;
    for (const HostSpec& host : hosts_) names.push_back(host.name + ":1");
    add(arguments);
    add({"-genvlist", kKeyVariable, "-hosts", fmt::format("{}", fmt::join(names, ","))});
  }
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (i > 0) words.emplace_back(":");
    if (!is_hydra_) add(arguments);
    add({"-n", "1"});
    if (!is_hydra_) add({"--host", hosts_[i].name + ":1", "--bind-to", "none", "-x", kKeyVariable});
    add({options_.agent, "--agent", "--meet", place(), "--node-rank", std::to_string(i)});
  }
  return {words, merged_environment(own_environment(), {fmt::format("{}={}", kKeyVariable, key_)}),
          ""};
}

std::string MpirunTransport::words() const {
  std::string line;  // its boxes are made of dashes
  for (size_t at = 0; at < said_.size() && line.size() < kShownBytes;) {
    const size_t end = std::min(said_.find('\n', at), said_.size());
    const std::string one = said_.substr(at, end - at);
    if (one.find_first_not_of("- \r") != one.npos) line += (line.empty() ? "" : " ") + one;
    at = end + 1;
  }
  return line.empty() ? "it said nothing" : line;
}

// Those whose agents have not come.
HostsUnreachable MpirunTransport::unreachable() {
  std::vector<std::string> missing;
  for (const HostSpec& host : hosts_) missing.push_back(host.name);
  for (const ArrivedGuest& guest : meeting_.take())
    missing[static_cast<size_t>(guest.guest.order)].clear();
  std::erase(missing, "");
  const size_t shown = std::min(missing.size(), kListedHosts);
  return HostsUnreachable(
      fmt::format("{} of {} hosts: no agent came to {} within {}: {}{}; mpirun: {}", missing.size(),
                  hosts_.size(), place(), text_of(options_.time),
                  fmt::join(missing.begin(), missing.begin() + static_cast<long>(shown), ", "),
                  missing.size() > shown ? ", ..." : "", words()),
      missing);
}

std::optional<int> MpirunTransport::gather(int control_fd) {
  const MeetingGuest self{-1, 0, static_cast<int>(hosts_.size())};
  try {
    const auto goes_on = [this] {
      dispatch();
      return !end_;
    };
    if (const auto number = meeting_.gather(hosts_.size(), self, options_.time, control_fd,
                                            options_.ending_signals, events_.number(), goes_on))
      return number;
  } catch (const MeetingOver&) {
    throw unreachable();
  }
  std::vector<ArrivedGuest> guests = meeting_.take();
  if (guests.size() < hosts_.size())
    throw std::runtime_error(fmt::format("mpirun ended before {} of {} agents had come: {}",
                                         hosts_.size() - guests.size(), hosts_.size(), words()));
  said_.clear();  // what it says from now on is about something else
  for (size_t i = 0; i < hosts_.size(); ++i)
    channels_.emplace(hosts_[i].name, std::move(guests[i].channel));
  return std::nullopt;
}

Line MpirunTransport::open(const HostSpec& host) {
  Line line;
  line.in = std::move(channels_.at(host.name));
  line.out = FileDescriptor(fcntl(line.in.number(), F_DUPFD_CLOEXEC, 0));
  return line;
}

int run_agent_of_mpirun(const std::string& place, int64_t order) {
  const std::vector<std::string> environment = own_environment();
  const std::optional<OuterRank> outer = rank_in_mpi(environment);
  const std::optional<std::string> key = value_in(environment, kKeyVariable);
  if (!outer || !key || order < 0 || order >= outer->size)
    throw ConfigError("--agent --meet is for mpirun, as smp-launch --via mpirun starts it");
  unsetenv(kKeyVariable);
  leave_mpi();
  return run_agent(join_meeting(parse_meeting_place("--meet", place), *key,
                                {static_cast<int>(order), 0, outer->size}, kForAgent));
}

}  // namespace smp
