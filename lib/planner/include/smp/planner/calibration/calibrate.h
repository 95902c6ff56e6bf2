#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"

// Fits the few constants of one cluster to measured runs: least squares on log(predicted /
// measured) of their step times, so that being twice as fast weighs as being twice as slow. A
// constant is fitted only where the runs tell it from the others. Pure but for load_runs; any
// thread.
namespace smp::calibration {

struct CalibrationRun {
  std::string name;  // for people
  Plan plan;
  double step_s = 0;                    // measured
  std::optional<int64_t> peak_bytes;    // of the rank with most, as the allocator counts
  std::optional<int64_t> device_bytes;  // the same with context and libraries, as nvidia-smi shows
};

// `path` is a report.json, whose plan.yaml lies beside it, or a list of runs, one JSON object a
// line (*.jsonl): {"plan": "a.yaml", "measured_step_s": 0.2, "measured_peak_bytes": 123,
// "measured_device_bytes": 456}, or {"report": "run/report.json"}; paths are relative to the list.
// Throws ConfigError.
std::vector<CalibrationRun> load_runs(const std::string& path);

struct FittedConstant {
  std::string key;  // of the cluster section
  double before = 0;
  double after = 0;
};

struct CalibrationResidual {
  std::string name;
  double measured_s = 0;
  double before_s = 0;  // predicted
  double after_s = 0;
  std::optional<double> memory_error;  // predicted / measured - 1
};

struct Calibration {
  ClusterSpec cluster;
  std::vector<FittedConstant> fitted;
  std::vector<std::string> left;  // constants that stay, each with the reason
  std::vector<CalibrationResidual> residuals;
};

// The keys that can be fitted.
std::vector<std::string> calibration_keys();

// `keys` empty: those that the runs tell apart, at most one fewer than runs. Throws ConfigError for
// fits that the runs do not determine: fewer runs than constants, a named constant that no run
// depends on, or one that moves the runs only as another does.
Calibration calibrate(const ClusterSpec& base, const std::vector<CalibrationRun>& runs,
                      const std::vector<std::string>& keys);

// The cluster file, with what was fitted, the residuals and `date` as comments.
std::string calibration_yaml(const Calibration& calibration, const std::string& date);
std::string calibration_text(const Calibration& calibration);

}  // namespace smp::calibration
