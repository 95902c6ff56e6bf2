#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/planner/memory/event_peaks.h"
#include "smp/planner/prediction/fit.h"
#include "smp/planner/traps/traps.h"

// What `smp-plan check` says of a plan: whether it fits, how long a step takes, what decides that,
// and the traps in it. Pure; any thread.
namespace smp::report {

struct TimePartSeconds {
  std::string name;  // "matmuls"
  double seconds = 0;
};

struct Verdict {
  prediction::Fit fit = prediction::Fit::kNo;
  bool on_accelerator = false;
  std::string layout;
  // Of the fullest ranks.
  int64_t stage = 0;
  int64_t tensor = 0;
  std::string phase;
  int64_t peak_bytes = 0;
  int64_t low_bytes = 0, high_bytes = 0;  // in nine of ten runs
  int64_t allowed_bytes = 0;              // 0 = no limit is given
  std::vector<MemoryTerm> terms;          // at the peak
  std::vector<memory::EventPeak> events;
  // 0 = the cluster names no rates.
  double step_s = 0;
  double low_s = 0, high_s = 0;
  std::vector<TimePartSeconds> parts;  // they sum to step_s
  std::string bound_by;                // the largest part
  std::optional<double> mfu;  // of 1; nothing where the model's flops or the peak are unknown
  std::vector<traps::Trap> warnings;
};

struct VerdictOptions {
  double expert_imbalance = 1.5;  // event_peaks()
};

Verdict verdict_of(const Plan& plan, const VerdictOptions& options = {});

// "fits: 61.2 of 79.6 GiB a rank (fullest: stage 0, backward), step 1.84 s (1.75 s to 2.10 s), MFU
// 43 %, bound by matmuls; 2 warnings".
std::string verdict_line(const Verdict& verdict);
// The table of events, the largest marked; a line each, indented by two.
std::string events_text(const Verdict& verdict);
// Why a tight plan is a risk, and what to do.
std::string tight_text(const Verdict& verdict);

}  // namespace smp::report
