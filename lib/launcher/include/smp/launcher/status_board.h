#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "smp/launcher/job_observer.h"
#include "smp/launcher/log_file.h"
#include "smp/launcher/run_status.h"

namespace smp {

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
// once a second. What cannot be written is told once, and tried again: a job does not end for want
// of onlookers. One thread.
class StatusBoard : public JobObserver {
 public:
  StatusBoard(BoardPlaces places, int max_restarts);

  void on_look(const JobView& view) override;
  // Of a host a line a second at most in the first ten minutes of a start, then one in ten.
  void on_usage(const HostUsage& usage) override;
  void on_event(const JobEvent& event) override;

  // The job has another number, or another start of it begins.
  void begin_start(const std::string& job_id, int start, int ranks);
  void set_state(const std::string& state);
  void still_there();  // nothing has changed; to be called now and then
  void end(int exit_code);

  // What could not be written since the last call; empty: nothing.
  std::string take_trouble();

 private:
  using Clock = std::chrono::steady_clock;

  void write(bool now);
  std::unique_ptr<LogFile> opened(const std::string& path);
  void append(LogFile* file, const std::string& path, const std::string& line);
  void replace(const std::string& path, const std::string& text);
  void tell(const std::string& path, const std::string& trouble);

  BoardPlaces places_;
  RunStatus status_;
  std::unique_ptr<LogFile> events_, usage_;
  Clock::time_point start_began_{};
  std::map<std::string, Clock::time_point> usage_at_;  // written, of each host
  Clock::time_point written_at_{};
  std::string trouble_;
  std::set<std::string> failing_;  // files, which were told
};

}  // namespace smp
