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

// The event file of one start of a run, in <folder>/: what the run was told, then the numbers of
// each step. add() keeps a copy and returns; a thread makes records of it and writes them, every
// kFlushS seconds and at the end. What was added is in the file when this object is gone, unless
// the disk refused it. Used by one thread.
class EventLog {
 public:
  static constexpr double kFlushS = 2;

  // `steps_done`: before this start. Events of later steps in the folder's older files were of a
  // training that is given up: readers drop them at this file's first record. Throws
  // std::runtime_error with path and reason where the file cannot be made.
  EventLog(const std::string& folder, const Plan& plan, int64_t steps_done);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Throws what an earlier write failed with.
  void add(const record::StepMetrics& metrics);

  // The run has come to its end after `step` steps: all of it is written. Throws what a write
  // failed with.
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

  std::unique_ptr<EventFile> file_;  // of the thread, while it runs
  std::mutex mutex_;                 // of what follows
  std::condition_variable closing_;
  std::vector<Taken> added_;
  bool closed_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace smp::tensorboard
