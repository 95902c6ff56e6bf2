#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/host_usage.h"
#include "smp/plan/plan.h"
#include "smp/plan/step_timeline.h"
#include "smp/plan/trace_file.h"
#include "smp/planner/run_report.h"

namespace smp {

// One line of metrics.jsonl. What is not a number there (a loss that is not finite) is NaN.
struct MeasuredStep {
  int64_t step = 0;
  double loss = 0;
  double step_s = 0;
  double tokens_per_s = 0;
  std::optional<double> exposed_s;  // collectives that computing did not hide, on rank 0
  std::optional<double> evaluation_loss;
};

// What a run has left in its folder. Parts that a run does not have are empty: a program has no
// plan, and then no steps, report and timelines; one that was killed no report.
struct RunRecord {
  std::string folder;
  std::optional<Plan> plan;
  std::optional<RunReport> report;
  std::vector<MeasuredStep> steps;
  std::vector<HostUsage> usage;         // in the order of the file
  std::vector<StepTimeline> timelines;  // by rank; of one step
  std::vector<ReadSlice> trace;         // of the last step of trace.json; pid is the rank
  std::vector<std::string> notes;       // what is missing, in words
};

// Throws ConfigError: no such folder, nothing of a run in it, or a file that is damaged, with its
// line; a damaged timeline, trace or sample is a note. The last line of a file that is still being
// written may lack its end, and is left out.
RunRecord read_run_record(const std::string& folder);

// For a terminal.
std::string run_text(const RunRecord& run);

}  // namespace smp
