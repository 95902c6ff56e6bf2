#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "smp/launcher/job/job_observer.h"

// What another terminal, or a monitor, may know of a running job. Pure functions; any thread.
namespace smp::run {

struct RunStatus {
  std::string job_id;
  std::string state = "starting";  // starting, running, waiting (for a restart), ended
  std::string host;                // where smp-launch runs, and as which process
  int64_t process = 0;
  std::chrono::system_clock::time_point began{}, updated{};
  int start = 1;  // counted from 1
  int max_restarts = 0;
  job::JobView view;
  std::string last_event;  // in words
  int exit_code = 0;       // once it has ended

  int restarts() const { return start - 1; }
};

// One object, for <run>/status.json; parse_status reads it again. Throws ConfigError for another.
std::string status_json(const RunStatus& status);
RunStatus parse_status(const std::string& path, std::string_view text);

// "8/8 ranks  step 20/200  loss 2.7312  12,345 tokens/s  3 s left  1 restart", cut to a terminal of
// so many columns.
std::string status_line(const RunStatus& status, int columns);

// Whether the smp-launch of a status still runs, as far as that can be known.
enum class Watcher {
  kRuns,
  kSilent,  // there, or on a host that cannot be asked; but it has not written for long
  kGone,
};

// What smp-launch --status prints.
std::string status_text(const RunStatus& status, Watcher watcher,
                        std::chrono::system_clock::time_point now);

// The same as gauges in Prometheus's text format, for a collector of text files.
std::string prometheus_text(const RunStatus& status);

// One line of events.jsonl, with its end.
std::string event_json(const job::JobEvent& event, int start,
                       std::chrono::system_clock::time_point now);

}  // namespace smp::run
