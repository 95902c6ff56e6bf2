#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/text/json.h"
#include "smp/planner/calibration/calibrate.h"
#include "smp/planner/runs/run_report.h"

namespace smp::calibration {
namespace {

namespace fs = std::filesystem;

CalibrationRun run_of_report(const std::string& path) {
  const runs::RunReport report = runs::load_run_report(path);
  const fs::path folder = fs::path(path).parent_path();
  CalibrationRun run;
  run.name = folder.filename().empty() ? path : folder.filename().string();
  run.plan = planfile::read_plan((folder / "plan.yaml").string());
  run.step_s = report.step_s;
  int64_t peak = 0;
  for (const runs::MeasuredRank& rank : report.ranks) peak = std::max(peak, rank.peak_bytes);
  run.peak_bytes = peak;
  return run;
}

std::optional<int64_t> bytes_of(const text::Json& json, const char* key, const std::string& where) {
  if (!json.contains(key)) return std::nullopt;
  constexpr double kMostBytes = 0x1p60;
  if (!json.at(key).is_number() || !(json.at(key).get<double>() > 0) ||
      json.at(key).get<double>() > kMostBytes) {
    throw ConfigError(fmt::format("{}: '{}' is not a number of bytes", where, key));
  }
  return static_cast<int64_t>(json.at(key).get<double>());
}

CalibrationRun run_of_line(const std::string& line, const std::string& where,
                           const fs::path& folder) {
  text::Json json;
  try {
    json = text::Json::parse(line);
  } catch (const text::Json::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}: no JSON", where, error.byte));
  } catch (const text::Json::out_of_range&) {
    throw ConfigError(fmt::format("{}: not valid JSON: a number is out of range", where));
  }
  const auto path_of = [&](const char* key) {
    if (!json.at(key).is_string())
      throw ConfigError(fmt::format("{}: '{}' is not a path", where, key));
    return (folder / json.at(key).get<std::string>()).string();
  };
  if (!json.is_object()) throw ConfigError(fmt::format("{}: not a JSON object", where));
  for (const auto& [key, value] : json.items()) {
    if (key != "plan" && key != "report" && key != "measured_step_s" &&
        key != "measured_peak_bytes" && key != "measured_device_bytes") {
      throw ConfigError(fmt::format("{}: unknown key '{}'", where, key));
    }
  }
  if (json.contains("report")) return run_of_report(path_of("report"));
  if (!json.contains("plan") || !json.contains("measured_step_s")) {
    throw ConfigError(fmt::format("{}: needs 'report', or 'plan' and 'measured_step_s'", where));
  }
  CalibrationRun run;
  run.name = json.at("plan").is_string() ? json.at("plan").get<std::string>() : "";
  run.plan = planfile::read_plan(path_of("plan"));
  if (!json.at("measured_step_s").is_number() || !(json.at("measured_step_s").get<double>() > 0)) {
    throw ConfigError(fmt::format("{}: 'measured_step_s' is not a time above 0", where));
  }
  run.step_s = json.at("measured_step_s").get<double>();
  run.peak_bytes = bytes_of(json, "measured_peak_bytes", where);
  run.device_bytes = bytes_of(json, "measured_device_bytes", where);
  return run;
}

}  // namespace

std::vector<CalibrationRun> load_runs(const std::string& path) {
  if (fs::path(path).extension() != ".jsonl") return {run_of_report(path)};
  std::istringstream file(files::read_text_file(path, "list of runs"));
  std::vector<CalibrationRun> runs;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    runs.push_back(
        run_of_line(line, fmt::format("{}:{}", path, number), fs::path(path).parent_path()));
  }
  if (runs.empty()) throw ConfigError(fmt::format("{}: no run", path));
  return runs;
}

}  // namespace smp::calibration
