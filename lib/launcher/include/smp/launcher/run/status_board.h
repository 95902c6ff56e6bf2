#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "smp/launcher/job/job_observer.h"
#include "smp/launcher/process/disk_thread.h"
#include "smp/launcher/run/run_status.h"

namespace smp::run {

// Where a board shows a job; "" = nowhere.
struct BoardPlaces {
  std::string status_file;                                 // <run>/status.json
  std::string events_file;                                 // <run>/events.jsonl
  std::string usage_file;                                  // <run>/usage.jsonl
  std::string metrics_file;                                // Prometheus
  std::function<void(const std::string& line)> show_line;  // on a terminal; none: there is none
  std::function<int()> columns;                            // of it, now
};

// Keeps a job's status and events where others can read them. Files are replaced whole, at most
// once a second, beside the calling thread: of a file system that stands still, the board keeps
// what is newest. What cannot be written is told once, and tried again: a job does not end for want
// of onlookers. One thread.
class StatusBoard : public job::JobObserver {
 public:
  StatusBoard(BoardPlaces places, int max_restarts);

  void on_look(const job::JobView& view) override;
  // Of a host a line a second at most in the first ten minutes of a start, then one in ten.
  void on_usage(const system::HostUsage& usage) override;
  void on_event(const job::JobEvent& event) override;

  // The job has another number, or another start of it begins.
  void begin_start(const std::string& job_id, int start, int ranks);
  void set_state(const std::string& state);
  void still_there();       // nothing has changed; to be called now and then
  void end(int exit_code);  // all is written behind it, where that takes 10 s at most

  // What could not be written since the last call, as far as that is known; empty: nothing.
  std::string take_trouble();

 private:
  using Clock = std::chrono::steady_clock;

  void write(bool now);
  struct Files;  // what the writing thread uses

  void append(const std::string& path, std::string line);
  void replace(const std::string& path, std::string text);

  BoardPlaces places_;
  RunStatus status_;
  Clock::time_point start_began_{};
  std::map<std::string, Clock::time_point> usage_at_;  // written, of each host
  Clock::time_point written_at_{};
  std::shared_ptr<Files> files_;
  process::DiskThread disk_;
};

}  // namespace smp::run
