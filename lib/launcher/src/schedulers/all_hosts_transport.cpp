#include "smp/launcher/schedulers/all_hosts_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/environment/variables.h"
#include "smp/launcher/process/descendants.h"
#include "smp/launcher/process/process_end.h"
#include "smp/plan/base/random_hex.h"

namespace smp::schedulers {
namespace {

using std::chrono::milliseconds;

constexpr int kKeyBytes = 32;
constexpr milliseconds kForEnd{2'000};     // of the program: the agents ended, or it was asked
constexpr milliseconds kForFailed{3'000};  // that may come all the same
constexpr size_t kShownBytes = 400;        // of what it said
constexpr size_t kKeptBytes = 8 << 10;     // of it
constexpr size_t kKeptOfStart = 1 << 20;   // while agents are waited for: a line for each may come

system::FileDescriptor checked(int number, const char* what) {
  if (number < 0) throw std::system_error(errno, std::generic_category(), what);
  return system::FileDescriptor(number);
}

// As a whole: "n1" stands neither in "gpu-n1" nor in "n1.cluster", but in "failure on n1.".
bool names_host(const std::string& line, const std::string& host) {
  const auto is_letter = [&](size_t at) {
    return at < line.size() && (std::isalnum(static_cast<unsigned char>(line[at])) != 0);
  };
  const auto goes_on = [&](size_t at, size_t behind) {
    const bool joins = at < line.size() && (line[at] == '-' || line[at] == '.' || line[at] == '_');
    return is_letter(at) || (joins && is_letter(behind));
  };
  for (size_t at = line.find(host); at != line.npos; at = line.find(host, at + 1)) {
    const size_t end = at + host.size();
    if (host.empty() || (!goes_on(at - 1, at - 2) && !goes_on(end, end + 1))) return true;
  }
  return false;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

AllHostsTransport::AllHostsTransport(std::string program, std::vector<hosts::HostSpec> hosts,
                                     AllHostsOptions options, reach::Rendezvous rendezvous)
    : program_(std::move(program)),
      hosts_(std::move(hosts)),
      options_(std::move(options)),
      rendezvous_(std::move(rendezvous)),
      events_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {}

void AllHostsTransport::watch() {
  for (const system::FileDescriptor* one : {&streams_.in, &streams_.errors, &streams_.process}) {
    fcntl(one->number(), F_SETFL, fcntl(one->number(), F_GETFL) | O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    epoll_ctl(events_.number(), EPOLL_CTL_ADD, one->number(), &event);
  }
}

// Whoever is done with is closed, and leaves the epoll so.
void AllHostsTransport::dispatch() {
  siginfo_t info{};
  if (streams_.process &&
      waitid(P_PID, static_cast<id_t>(streams_.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid != 0) {
    end_.emplace();
    (info.si_code == CLD_EXITED ? end_->exit_code : end_->signal) = info.si_status;
    streams_.process.reset();
  }
  std::array<char, 4096> bytes;
  for (system::FileDescriptor* stream : {&streams_.in, &streams_.errors}) {
    ssize_t size = -1;
    while (*stream && (size = read(stream->number(), bytes.data(), bytes.size())) > 0)
      said_.append(bytes.data(), static_cast<size_t>(size));
    if (size == 0) stream->reset();
  }
  const size_t kept = has_gathered_ ? kKeptBytes : kKeptOfStart;
  if (said_.size() > kept) said_.erase(0, said_.size() - kept);
}

std::vector<std::string> AllHostsTransport::missing() const {
  std::vector<std::string> names;
  for (const hosts::HostSpec& host : hosts_) names.push_back(host.name);
  for (const reach::JoinedNode& arrived : rendezvous_.arrived()) {
    const auto order = static_cast<size_t>(arrived.node.node_rank);
    if (order < names.size()) names[order].clear();
  }
  std::erase(names, "");
  return names;
}

std::set<std::string> AllHostsTransport::failed_hosts() const {
  std::set<std::string> failed;
  for (const std::string& line : lines_of(said_)) failed.merge(failed_by(line));
  return failed;
}

// While agents are waited for. Those that are slow are not given up for those that fail.
bool AllHostsTransport::goes_on() {
  dispatch();
  if (end_) return false;
  const std::set<std::string> failed = failed_hosts();
  const bool may_be_all = failed.size() + rendezvous_.arrived().size() >= hosts_.size();
  const std::vector<std::string> left = may_be_all ? missing() : std::vector<std::string>{};
  if (!may_be_all || !std::all_of(left.begin(), left.end(), [&](const std::string& host) {
        return failed.count(host) != 0;
      })) {
    give_up_at_.reset();
    return true;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!give_up_at_) give_up_at_ = now + kForFailed;
  return now < *give_up_at_;
}

std::string AllHostsTransport::why_command_ended() const {
  return end_ ? fmt::format("{} {}: {}", program_, process::text_of(*end_), words()) : "";
}

bool AllHostsTransport::ends_in_time() {
  const auto deadline = std::chrono::steady_clock::now() + kForEnd;
  while (!end_ && std::chrono::steady_clock::now() < deadline) {
    pollfd ready{events_.number(), POLLIN, 0};
    poll(&ready, 1, 50);
    dispatch();
  }
  return end_.has_value();
}

// Agents whose connection ends leave by themselves, and the program with the last of them. One that
// still reaches hosts is asked; its ssh processes outlive it, each in a group of its own, but in
// its session.
AllHostsTransport::~AllHostsTransport() {
  if (streams_.pid < 0) return;
  const bool had_come = !channels_.empty();
  channels_.clear();
  rendezvous_.close();
  streams_.out.reset();
  if (!had_come || !ends_in_time()) {
    if (!end_) kill(streams_.pid, SIGTERM);
    if (!ends_in_time()) kill(streams_.pid, SIGKILL);
    while (!ends_in_time()) continue;
  }
  process::end_session(streams_.pid, kForEnd);
  waitpid(streams_.pid, nullptr,
          0);  // not before: the session's number is nobody else's until then
}

std::string AllHostsTransport::lines_about(const std::string& host) const {
  std::string about;  // its boxes are made of dashes
  for (const std::string& line : lines_of(said_)) {
    if (line.find_first_not_of("- \r") != line.npos &&
        (names_host(line, host) || failed_by(line).count(host) != 0))
      about += (about.empty() ? "" : " ") + line;
    if (about.size() >= kShownBytes) break;
  }
  return about;
}

std::string AllHostsTransport::words(const std::string& host) const {
  const std::string about = lines_about(host);
  if (about.empty() && !host.empty()) return words();
  return about.empty() ? "it said nothing" : about;
}

std::optional<int> AllHostsTransport::gather(int control_fd) {
  streams_ = reach::AgentTransport::open(hosts_.front());
  watch();
  const reach::RendezvousNode self{-1, 0, static_cast<int>(hosts_.size())};
  bool is_over = false;
  try {
    if (const auto number = rendezvous_.gather(hosts_.size(), self, options_.time, control_fd,
                                               options_.ending_signals, events_.number(),
                                               [this] { return goes_on(); }))
      return number;
  } catch (const reach::RendezvousTimeout&) {
    is_over = true;
  }
  const std::vector<std::string> left = missing();
  for (reach::JoinedNode& arrived : rendezvous_.take()) {
    const auto order = static_cast<size_t>(arrived.node.node_rank);
    if (order < hosts_.size()) channels_.emplace(hosts_[order].name, std::move(arrived.channel));
  }
  if (!left.empty()) are_missing(left, is_over);
  has_gathered_ = true;
  said_.clear();  // what it says from now on is about something else
  return std::nullopt;
}

reach::AgentStreams AllHostsTransport::open(const hosts::HostSpec& host) {
  reach::AgentStreams line;
  line.in = std::move(channels_.at(host.name));
  line.out = system::FileDescriptor(fcntl(line.in.number(), F_DUPFD_CLOEXEC, 0));
  return line;
}

std::string make_rendezvous_key() { return random_hex(kKeyBytes); }

std::optional<std::string> take_rendezvous_key() {
  char* const value = getenv(kRendezvousKey);
  if (value == nullptr) return std::nullopt;
  std::string key = value;
  explicit_bzero(value, key.size());
  unsetenv(kRendezvousKey);
  return key;
}

}  // namespace smp::schedulers
