#include "smp/launcher/status_board.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <system_error>
#include <utility>

#include "smp/launcher/plain_file.h"

namespace smp {
namespace {

constexpr std::chrono::milliseconds kBetweenWrites{1000};
constexpr std::chrono::minutes kAllUsageFor{10};  // of a start: that is when people look
constexpr std::chrono::seconds kBetweenUsageLater{10};

std::string own_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

StatusBoard::StatusBoard(BoardPlaces places, int max_restarts) : places_(std::move(places)) {
  status_.host = own_host();
  status_.process = getpid();
  status_.began = std::chrono::system_clock::now();
  status_.max_restarts = max_restarts;
  events_ = opened(places_.events_file);
  usage_ = opened(places_.usage_file);
}

std::unique_ptr<LogFile> StatusBoard::opened(const std::string& path) {
  if (path.empty()) return nullptr;
  try {
    return std::make_unique<LogFile>(path);
  } catch (const std::system_error& error) {
    tell(path, error.what());
    return nullptr;
  }
}

void StatusBoard::append(LogFile* file, const std::string& path, const std::string& line) {
  if (file == nullptr) return;
  try {
    file->write(line);
    failing_.erase(path);
  } catch (const std::system_error& error) {
    tell(path, error.what());
  }
}

void StatusBoard::begin_start(const std::string& job_id, int start, int ranks) {
  status_.job_id = job_id;
  status_.start = start;
  status_.view = {};
  status_.view.ranks = ranks;
  status_.state = "running";
  start_began_ = Clock::now();
  usage_at_.clear();
  on_event({"start", {}, fmt::format("{} ranks", ranks)});
}

void StatusBoard::set_state(const std::string& state) {
  status_.state = state;
  write(true);
}

void StatusBoard::still_there() { write(false); }

void StatusBoard::end(int exit_code) {
  status_.exit_code = exit_code;
  status_.view.running = 0;
  status_.state = "ended";
  on_event({"end", {}, fmt::format("exit code {}", exit_code)});
}

void StatusBoard::on_look(const JobView& view) {
  status_.view = view;
  if (places_.show_line) places_.show_line(status_line(status_, places_.columns()));
  write(false);
}

void StatusBoard::on_event(const JobEvent& event) {
  status_.last_event = event.rank           ? fmt::format("rank {} {}", *event.rank, event.text)
                       : event.text.empty() ? event.name
                                            : fmt::format("{}: {}", event.name, event.text);
  if (events_ != nullptr)
    append(events_.get(), places_.events_file,
           event_json(event, status_.start, std::chrono::system_clock::now()));
  // The ends of many ranks come at once, and the last word is that of the job.
  write(event.name != "rank_ended");
}

void StatusBoard::on_usage(const HostUsage& usage) {
  const Clock::time_point now = Clock::now();
  Clock::time_point& at = usage_at_[usage.host];
  if (now - start_began_ > kAllUsageFor && now - at < kBetweenUsageLater) return;
  at = now;
  HostUsage told = usage;
  told.start = status_.start;
  append(usage_.get(), places_.usage_file, usage_json(told) + "\n");
}

void StatusBoard::write(bool now) {
  if (!now && Clock::now() - written_at_ < kBetweenWrites) return;
  written_at_ = Clock::now();
  status_.updated = std::chrono::system_clock::now();
  if (!places_.status_file.empty()) replace(places_.status_file, status_json(status_));
  if (!places_.metrics_file.empty()) replace(places_.metrics_file, prometheus_text(status_));
}

void StatusBoard::replace(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  if (write_plain_file(draft, text) && std::rename(draft.c_str(), path.c_str()) == 0) {
    failing_.erase(path);
    return;
  }
  tell(path, fmt::format("cannot write '{}': {}", path, strerror(errno)));
  std::remove(draft.c_str());
}

void StatusBoard::tell(const std::string& path, const std::string& trouble) {
  if (failing_.insert(path).second) trouble_ = trouble;
}

std::string StatusBoard::take_trouble() { return std::exchange(trouble_, {}); }

}  // namespace smp
