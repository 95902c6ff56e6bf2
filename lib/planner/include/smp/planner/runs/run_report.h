#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/mesh/mesh.h"
#include "smp/plan/spec/plan.h"

// report.json as the worker writes it at the end of a run: what was counted, without what was
// predicted (the plan says that). Pure but for load_run_report; any thread.
namespace smp::runs {

struct MeasuredWire {
  std::string label;  // "data.gradients"
  int64_t calls = 0;
  int64_t bytes = 0;
};

struct MeasuredRank {
  int64_t rank = 0;
  int64_t stage = 0;
  int64_t tensor = 0;
  int64_t peak_bytes = 0;
  std::string peak_phase;
  std::array<int64_t, kMemoryCategories> by_category{};
  std::vector<MeasuredWire> wire;
};

struct RunReport {
  std::string path;  // as errors name it
  mesh::Degrees degrees;
  int64_t steps = 0;
  double step_s = 0;
  std::vector<MeasuredRank> ranks;
};

// Throw ConfigError, "report.json: ...", for what is no such report.
RunReport parse_run_report(const std::string& path, const std::string& text);
RunReport load_run_report(const std::string& path);

}  // namespace smp::runs
