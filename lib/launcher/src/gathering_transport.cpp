#include "smp/launcher/gathering_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>

#include "smp/launcher/descendants.h"
#include "smp/launcher/outer_launcher.h"
#include "smp/launcher/rank_environment.h"
#include "smp/launcher/report.h"
#include "smp/plan/random_hex.h"

namespace smp {
namespace {

using std::chrono::milliseconds;

constexpr int kKeyBytes = 32;
constexpr milliseconds kForEnd{
    2'000};                          // of the program, when the agents have ended, or it was asked
constexpr time_t kForOthersS = 3;    // behind the first that fails
constexpr size_t kShownBytes = 400;  // of what it said
constexpr size_t kKeptBytes = 8 << 10;

FileDescriptor checked(int number, const char* what) {
  if (number < 0) throw std::system_error(errno, std::generic_category(), what);
  return FileDescriptor(number);
}

bool names_host(const std::string& line, const std::string& host) {
  const auto is_of_name = [&](size_t at) {
    return at < line.size() && (std::isalnum(static_cast<unsigned char>(line[at])) != 0);
  };
  for (size_t at = line.find(host); at != line.npos; at = line.find(host, at + 1)) {
    if (host.empty() || (!is_of_name(at - 1) && !is_of_name(at + host.size()))) return true;
  }
  return false;
}

}  // namespace

GatheringTransport::GatheringTransport(std::string program, std::vector<HostSpec> hosts,
                                       GatheringOptions options, const MeetingPlace& place)
    : program_(std::move(program)),
      hosts_(std::move(hosts)),
      options_(std::move(options)),
      key_(random_hex(kKeyBytes)),
      meeting_(place, key_),
      events_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      give_up_(checked(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd")) {}

void GatheringTransport::watch() {
  for (const FileDescriptor* one : {&line_.in, &line_.errors, &line_.process, &give_up_}) {
    fcntl(one->number(), F_SETFL, fcntl(one->number(), F_GETFL) | O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    epoll_ctl(events_.number(), EPOLL_CTL_ADD, one->number(), &event);
  }
}

// Whoever is done with is closed, and leaves the epoll so.
void GatheringTransport::dispatch() {
  siginfo_t info{};
  if (line_.process.is_open() &&
      waitid(P_PID, static_cast<id_t>(line_.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid != 0) {
    end_.emplace();
    (info.si_code == CLD_EXITED ? end_->exit_code : end_->signal) = info.si_status;
    line_.process.reset();
  }
  std::array<char, 4096> bytes;
  for (FileDescriptor* stream : {&line_.in, &line_.errors}) {
    ssize_t size = -1;
    while (stream->is_open() && (size = read(stream->number(), bytes.data(), bytes.size())) > 0) {
      const size_t room = kKeptBytes - std::min(kKeptBytes, said_.size());
      said_.append(bytes.data(), std::min(room, static_cast<size_t>(size)));
    }
    if (size == 0) stream->reset();
  }
}

// While agents are waited for.
bool GatheringTransport::goes_on() {
  dispatch();
  itimerspec time{};
  timerfd_gettime(give_up_.number(), &time);
  uint64_t ticks = 0;
  if (read(give_up_.number(), &ticks, sizeof ticks) > 0) return false;
  if (time.it_value.tv_sec == 0 && time.it_value.tv_nsec == 0 && tells_of_failure(said_)) {
    time.it_value.tv_sec = kForOthersS;
    timerfd_settime(give_up_.number(), 0, &time, nullptr);
  }
  return !end_;
}

std::string GatheringTransport::why_way_ended() const {
  return end_ ? fmt::format("{} {}: {}", program_, text_of(*end_), words()) : "";
}

bool GatheringTransport::ends_in_time() {
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
GatheringTransport::~GatheringTransport() {
  if (line_.pid < 0) return;
  const bool had_come = !channels_.empty();
  channels_.clear();
  meeting_.close();
  line_.out.reset();
  give_up_.reset();
  if (!had_come || !ends_in_time()) {
    if (!end_) kill(line_.pid, SIGTERM);
    if (!ends_in_time()) kill(line_.pid, SIGKILL);
    while (!ends_in_time()) continue;
  }
  end_session(line_.pid, kForEnd);
  waitpid(line_.pid, nullptr, 0);  // not before: the session's number is nobody else's until then
}

std::string GatheringTransport::words(const std::string& host) const {
  std::string line;  // its boxes are made of dashes
  for (size_t at = 0; at < said_.size() && line.size() < kShownBytes;) {
    const size_t end = std::min(said_.find('\n', at), said_.size());
    const std::string one = said_.substr(at, end - at);
    if (one.find_first_not_of("- \r") != one.npos && names_host(one, host))
      line += (line.empty() ? "" : " ") + one;
    at = end + 1;
  }
  if (line.empty() && !host.empty()) return words();
  return line.empty() ? "it said nothing" : line;
}

std::optional<int> GatheringTransport::gather(int control_fd) {
  line_ = Transport::open(hosts_.front());
  watch();
  const MeetingGuest self{-1, 0, static_cast<int>(hosts_.size())};
  bool is_over = false;
  try {
    if (const auto number =
            meeting_.gather(hosts_.size(), self, options_.time, control_fd, options_.ending_signals,
                            events_.number(), [this] { return goes_on(); }))
      return number;
  } catch (const MeetingOver&) {
    is_over = true;
  }
  give_up_.reset();  // it would be readable for ever
  std::vector<std::string> missing;
  for (const HostSpec& host : hosts_) missing.push_back(host.name);
  for (ArrivedGuest& arrived : meeting_.take()) {
    const auto order = static_cast<size_t>(arrived.guest.order);
    if (order >= hosts_.size()) continue;
    missing[order].clear();
    channels_.emplace(hosts_[order].name, std::move(arrived.channel));
  }
  std::erase(missing, "");
  if (!missing.empty()) are_missing(missing, is_over);
  said_.clear();  // what it says from now on is about something else
  return std::nullopt;
}

Line GatheringTransport::open(const HostSpec& host) {
  Line line;
  line.in = std::move(channels_.at(host.name));
  line.out = FileDescriptor(fcntl(line.in.number(), F_DUPFD_CLOEXEC, 0));
  return line;
}

std::optional<std::string> take_meeting_key() {
  const std::optional<std::string> key = value_in(own_environment(), kMeetingKey);
  unsetenv(kMeetingKey);
  return key;
}

}  // namespace smp
