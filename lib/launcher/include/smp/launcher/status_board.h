#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "smp/launcher/job_observer.h"
#include "smp/launcher/log_file.h"
#include "smp/launcher/run_status.h"

namespace smp {

// Where a board shows a job; "" = nowhere.
struct BoardPlaces {
  std::string status_file;                                 // <run>/status.json
  std::string events_file;                                 // <run>/events.jsonl
  std::string metrics_file;                                // Prometheus
  std::function<void(const std::string& line)> show_line;  // on a terminal; none: there is none
  int columns = 0;                                         // of it
};

// Keeps a job's status and events where others can read them. Files are replaced whole, at most
// once a second. One that cannot be written is given up, and why() says so: a job does not end for
// want of onlookers. One thread.
class StatusBoard : public JobObserver {
 public:
  StatusBoard(BoardPlaces places, int max_restarts);

  void on_look(const JobView& view) override;
  void on_event(const JobEvent& event) override;

  // The job has another number, or another start of it begins.
  void begin_start(const std::string& job_id, int start, int ranks);
  void set_state(const std::string& state);
  void end(int exit_code);

  // What could not be written since the last call; empty: nothing.
  std::string take_trouble();

 private:
  using Clock = std::chrono::steady_clock;

  void write(bool now);
  void replace(std::string& path, const std::string& text);

  BoardPlaces places_;
  RunStatus status_;
  std::unique_ptr<LogFile> events_;
  Clock::time_point written_at_{};
  std::string trouble_;
};

}  // namespace smp
