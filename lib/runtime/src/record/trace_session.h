#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/files/atomic_file.h"
#include "smp/plan/runinfo/step_trace.h"
#include "smp/plan/spec/plan.h"

// The trace of a run (training.trace): all ranks record the chosen steps, and rank 0 writes them to
// one file, with the hosts' clocks aligned to its own. Used by the rank's own thread.
namespace smp::comm {
class CallLog;
class Communicator;
}  // namespace smp::comm
namespace smp::gpu {
class GpuMarks;
}

namespace smp::record {

// The offset of a host's steady clock from rank 0's.
struct HostClock {
  int64_t offset_ns = 0;       // host time + offset = rank 0's time
  int64_t uncertainty_ns = 0;  // the offset's error bound, either way: half of a round trip
};

// The clock of each rank. Ranks with equal `host` share a clock. The first rank of each other host
// exchanges kClockRounds messages with rank 0; the fastest round trip counts (Cristian 1989).
// Collective.
inline constexpr int kClockRounds = 16;
std::vector<HostClock> align_clocks(comm::Communicator& world, std::string_view host);

// Sets the ends of calls to the times at which the communicator saw them done, as far as its log
// goes back: the rank itself notices an end only when it polls. Closes calls that are done.
void set_call_ends(std::span<runinfo::TraceSlice> slices, const comm::CallLog& log);

class TraceSession {
 public:
  // `run_dir` "" = no trace. The path of the file is printed to `progress`, unless it is null.
  // `marks`: of the rank's GPU; null: none.
  TraceSession(const Plan& plan, comm::Communicator& world, std::string run_dir,
               std::FILE* progress, gpu::GpuMarks* marks,
               files::FileCalls& calls = files::system_file_calls());

  // For RankGroups::trace().
  runinfo::StepTracer& tracer() { return tracer_; }

  // To be called before the first step of this start, step `first` of the run (from 1). `actions`
  // are those of a step.
  void start(int64_t first, const std::vector<schedule::Action>& actions);
  // To be called around each step (from 1). Collective over the world in the first and the last
  // traced step.
  void begin_step(int64_t step);
  void end_step(int64_t step);
  // To be called after the last step: writes the trace if the run ended before the last traced
  // step. Collective.
  void finish();
  // To be called when the run fails: writes this rank's part to trace/rank-<r>.json. Never throws.
  void abandon() noexcept;

 private:
  bool is_wanted() const { return last_ > 0; }
  runinfo::RankTrace own_trace() const;
  void write_file();
  void tell(const std::string& line) const;

  const Plan& plan_;
  comm::Communicator& world_;
  const std::string run_dir_;
  std::FILE* const progress_;
  gpu::GpuMarks* const marks_;
  files::FileCalls& calls_;
  runinfo::StepTracer tracer_;
  int64_t first_ = 0, last_ = 0;   // 0: tracing is over
  std::vector<HostClock> clocks_;  // by rank, once they are aligned
  size_t slices_before_ = 0;       // number of slices before the current step
};

}  // namespace smp::record
