#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/record/metrics.h"

namespace smp::tensorboard {

class EventFile;

// The event file of one start of a run, in <folder>/: the hyperparameters, then the metrics of each
// step. add() copies the metrics and returns; a thread writes them every kFlushS seconds and at the
// end. The destructor writes all added metrics, unless the disk fails. Used by one thread.
class EventLog {
 public:
  static constexpr double kFlushS = 2;

  // `steps_done`: steps before this start. If the folder's older files have events of later steps,
  // this file's first record makes readers drop them, because this start replaces those steps.
  // Throws std::runtime_error with path and reason if the file cannot be created.
  EventLog(const std::string& folder, const Plan& plan, int64_t steps_done);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Throws the exception of an earlier failed write.
  void add(const record::StepMetrics& metrics);

  // Marks the end of the run after `step` steps and writes everything. Throws the exception of a
  // failed write.
  void end(int64_t step);

 private:
  struct Taken {
    double wall_time = 0;
    record::StepMetrics metrics;
  };

  void write_until_closed();
  void write(const std::vector<Taken>& taken);
  void close();
  void rethrow();

  std::unique_ptr<EventFile> file_;  // used by the thread while it runs
  std::mutex mutex_;                 // for the members below
  std::condition_variable closing_;
  std::vector<Taken> added_;
  bool closed_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace smp::tensorboard
