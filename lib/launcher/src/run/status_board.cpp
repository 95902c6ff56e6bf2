#include "smp/launcher/run/status_board.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "smp/launcher/process/log_file.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"

namespace smp::run {
namespace {

constexpr std::chrono::milliseconds kBetweenWrites{1000};
constexpr std::chrono::milliseconds kForLastWrites{10'000};
constexpr std::chrono::minutes kAllUsageFor{10};  // of a start: that is when people look
constexpr std::chrono::seconds kBetweenUsageLater{10};

std::string own_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

struct StatusBoard::Files {
  void append(const std::string& path, const std::string& line) {
    try {
      std::unique_ptr<process::LogFile>& log = logs[path];
      if (log == nullptr) log = std::make_unique<process::LogFile>(path);
      log->write(line);
      failing.erase(path);
    } catch (const std::system_error& error) {
      tell_first(path, error.what());
    }
  }

  void replace(const std::string& path) {
    std::string text;
    {
      const std::lock_guard lock(mutex);
      text = std::move(newest.extract(path).mapped());
    }
    try {
      files::write_text_file(path, text, path);
      failing.erase(path);
    } catch (const ConfigError& error) {
      tell_first(path, error.what());
    }
  }

  // True: nothing of this file waits yet.
  bool hold(const std::string& path, std::string text) {
    const std::lock_guard lock(mutex);
    return newest.insert_or_assign(path, std::move(text)).second;
  }

  void tell_first(const std::string& path, const std::string& what) {
    if (failing.insert(path).second) tell(what);
  }

  void tell(const std::string& what) {
    const std::lock_guard lock(mutex);
    trouble = what;
  }

  std::string take_trouble() {
    const std::lock_guard lock(mutex);
    return std::exchange(trouble, {});
  }

  std::map<std::string, std::unique_ptr<process::LogFile>> logs;
  std::set<std::string> failing;              // files, which were told
  std::mutex mutex;                           // of the following
  std::map<std::string, std::string> newest;  // by path
  std::string trouble;
};

StatusBoard::StatusBoard(BoardPlaces places, int max_restarts)
    : places_(std::move(places)), files_(std::make_shared<Files>()) {
  status_.host = own_host();
  status_.process = getpid();
  status_.began = std::chrono::system_clock::now();
  status_.max_restarts = max_restarts;
}

void StatusBoard::append(const std::string& path, std::string line) {
  if (path.empty()) return;
  if (disk_.full())
    return files_->tell(
        fmt::format("lines of '{}' were dropped: its file system does not answer", path));
  const size_t bytes = line.size();
  disk_.add(bytes, [files = files_, path, text = std::move(line)] { files->append(path, text); });
}

// Only the newest waits.
void StatusBoard::replace(const std::string& path, std::string text) {
  if (path.empty()) return;
  const size_t bytes = text.size();
  if (files_->hold(path, std::move(text)))
    disk_.add(bytes, [files = files_, path] { files->replace(path); });
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
  if (!disk_.wait(kForLastWrites))
    files_->tell(fmt::format(
        "the status files of the run are not written: their file system has not answered for {} s",
        kForLastWrites.count() / 1000));
}

void StatusBoard::on_look(const job::JobView& view) {
  status_.view = view;
  if (places_.show_line) places_.show_line(status_line(status_, places_.columns()));
  write(false);
}

void StatusBoard::on_event(const job::JobEvent& event) {
  status_.last_event = event.rank           ? fmt::format("rank {} {}", *event.rank, event.text)
                       : event.text.empty() ? event.name
                                            : fmt::format("{}: {}", event.name, event.text);
  append(places_.events_file, event_json(event, status_.start, std::chrono::system_clock::now()));
  // The ends of many ranks come at once, and the last word is that of the job.
  write(event.name != "rank_ended");
}

void StatusBoard::on_usage(const system::HostUsage& usage) {
  const Clock::time_point now = Clock::now();
  Clock::time_point& at = usage_at_[usage.host];
  if (now - start_began_ > kAllUsageFor && now - at < kBetweenUsageLater) return;
  at = now;
  system::HostUsage told = usage;
  told.start = status_.start;
  append(places_.usage_file, system::usage_json(told) + "\n");
}

void StatusBoard::write(bool now) {
  if (!now && Clock::now() - written_at_ < kBetweenWrites) return;
  written_at_ = Clock::now();
  status_.updated = std::chrono::system_clock::now();
  replace(places_.status_file, status_json(status_));
  replace(places_.metrics_file, prometheus_text(status_));
}

std::string StatusBoard::take_trouble() { return files_->take_trouble(); }

}  // namespace smp::run
