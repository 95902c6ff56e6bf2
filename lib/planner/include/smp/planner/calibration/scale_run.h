#pragma once

#include <string>
#include <vector>

#include "smp/planner/calibration/calibrate.h"
#include "smp/planner/runs/run_report.h"

// A measured run scaled to another job, term by term: how far the run was off its own plan in each
// category of memory and in time, carried over to the predictions of the new plan. Pure.
namespace smp::calibration {

struct ScaledTerm {
  std::string name;      // a memory category, "peak" or "step"
  double predicted = 0;  // of the new plan: bytes, or seconds of a step
  double ratio = 1;      // measured / predicted of the run
  double scaled() const { return predicted * ratio; }
};

struct ScaledRun {
  std::vector<ScaledTerm> memory;  // of the fullest rank class of the new plan
  double peak_bytes = 0;           // their sum
  double allowed_bytes = 0;        // 0 = no limit is given
  ScaledTerm step;
};

// `run_plan` is the plan that the run executed. Throws ConfigError when the report is of another
// plan.
ScaledRun scale_run(const Plan& run_plan, const runs::RunReport& run, const Plan& plan);

// A published run, of which only the peak and the step time are known: one ratio for all memory.
ScaledRun scale_run(const CalibrationRun& run, const Plan& plan);

std::string scaled_text(const ScaledRun& scaled);

}  // namespace smp::calibration
