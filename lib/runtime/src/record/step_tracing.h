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

// The timeline of training.trace: all ranks record the steps that it names, and rank 0 writes them
// as one file, with the clocks of the hosts laid on its own. Used by the rank's own thread.
namespace smp::comm {
class CallLog;
class Communicator;
}  // namespace smp::comm
namespace smp::gpu {
class GpuMarks;
}

namespace smp::record {

// How a host's steady clock lies beside rank 0's.
struct HostClock {
  int64_t offset_ns = 0;       // added to its times they are rank 0's
  int64_t uncertainty_ns = 0;  // by which that may be wrong, either way: half of a round trip
};

// Of each rank. Ranks with equal `host` share a clock; the first rank of each other host exchanges
// kClockRounds messages with rank 0, of which the quickest counts (Cristian 1989). Collective.
inline constexpr int kClockRounds = 16;
std::vector<HostClock> align_clocks(comm::Communicator& world, std::string_view host);

// Puts the ends of calls where the communicator saw them done, as far as its log reaches back: a
// rank itself learns of them only when it looks. Calls that are done by now are open no more.
void set_call_ends(std::span<runinfo::TraceSlice> slices, const comm::CallLog& log);

class StepTracing {
 public:
  // `run_dir` "" = nothing is traced. `progress` hears where the file is; null: nobody. `marks`: of
  // the rank's GPU; null: it has none.
  StepTracing(const Plan& plan, comm::Communicator& world, std::string run_dir, std::FILE* progress,
              gpu::GpuMarks* marks, files::FileCalls& calls = files::system_file_calls());

  // For RankGroups::trace().
  runinfo::StepTracer& tracer() { return tracer_; }

  // Before the first step of this start, the `first`th of the run; `actions` are those of a step.
  void start(int64_t first, const std::vector<schedule::Action>& actions);
  // Around each step, from 1. Collective over the world where tracing begins and ends.
  void begin_step(int64_t step);
  void end_step(int64_t step);
  // After the last step: writes what was traced, where the run ended before. Collective.
  void finish();
  // The run has failed: this rank's own part goes to trace/rank-<r>.json. Throws nothing.
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
  int64_t first_ = 0, last_ = 0;   // 0: nothing is traced any more
  std::vector<HostClock> clocks_;  // by rank, once they are aligned
  size_t slices_before_ = 0;       // of the step under way
};

}  // namespace smp::record
