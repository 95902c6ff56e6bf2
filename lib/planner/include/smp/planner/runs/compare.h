#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/planner/runs/run_report.h"

// What a plan predicted beside what its run counted: bytes of every rank by category, bytes on the
// wire, seconds of a step. Pure; any thread.
namespace smp::runs {

struct Compared {
  std::string name;
  double predicted = 0;
  double measured = 0;
  // predicted / measured - 1; nothing was measured: 0 when nothing was predicted, else 1.
  double error() const;
};

struct ComparedRank {
  int64_t rank = 0;
  Compared peak;  // bytes
  std::string predicted_phase;
  std::string measured_phase;
  std::vector<Compared> categories;  // bytes at the peak
  std::vector<Compared> wire;        // bytes of the whole run by label
};

struct ComparisonLimits {  // shares; nothing = no limit
  std::optional<double> memory_error;
  std::optional<double> time_error;
};

struct Comparison {
  std::vector<ComparedRank> ranks;
  Compared step;  // seconds
  ComparisonLimits limits;
  double worst_memory_error() const;  // largest of the ranks, absolute
  std::vector<std::string> problems;  // limits exceeded, one line each
};

// Throws ConfigError when the report is of another plan.
Comparison compare(const Plan& plan, const RunReport& report, const ComparisonLimits& limits);

std::string comparison_text(const Comparison& comparison);
std::string comparison_json(const Comparison& comparison);

}  // namespace smp::runs
