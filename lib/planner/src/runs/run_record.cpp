#include "smp/planner/runs/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/plan/text/json.h"

namespace smp::runs {
namespace {

namespace fs = std::filesystem;
// Calls read(line) for each line of the file, if it is there; what it throws gets the place.
template <typename Read>
void for_each_line(const std::string& path, const char* what, Read read) {
  if (!fs::exists(path)) return;
  const std::string text = files::read_text_file(path, what);
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == text.npos) return;  // it is being written
    ++number;
    try {
      read(std::string_view(text).substr(at, end - at));
    } catch (const std::exception& error) {
      throw ConfigError(fmt::format("{}:{}: {}", path, number, error.what()));
    }
    at = end + 1;
  }
}

double number_of(const text::Json& json, const char* key) {
  const text::Json& value = json.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

MeasuredStep step_of(std::string_view line) {
  try {
    const text::Json json = text::Json::parse(line);
    MeasuredStep step;
    step.step = json.at("step").get<int64_t>();
    step.loss = number_of(json, "loss");
    step.step_s = number_of(json, "step_s");
    step.tokens_per_s = number_of(json, "tokens_per_s");
    if (json.contains("exposed_s")) step.exposed_s = number_of(json, "exposed_s");
    if (json.contains("evaluation_loss")) step.evaluation_loss = number_of(json, "evaluation_loss");
    return step;
  } catch (const text::Json::exception& error) {
    throw ConfigError(fmt::format("not a step of a run: {}", error.what()));
  }
}

// One step of the plan's ranks. Pictures alone hang on it, so what is not of that step, or is
// damaged, is left out and told.
std::vector<runinfo::StepTimeline> timelines_in(const std::string& folder, int64_t ranks,
                                                std::vector<std::string>& notes) {
  std::vector<std::pair<std::string, runinfo::StepTimeline>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".json") continue;  // a draft that was never finished
    const std::string path = entry.path().string();
    try {
      found.emplace_back(
          path, runinfo::parse_timeline(path, files::read_text_file(path, "timeline of a step")));
    } catch (const ConfigError& damage) {
      notes.push_back(fmt::format("left out: {}", damage.what()));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.second.rank < b.second.rank; });
  const auto is_none = [&](const auto& one) {
    const bool none = one.second.rank < 0 || one.second.rank >= ranks;
    if (none) notes.push_back(fmt::format("left out: {}: the plan has no such rank", one.first));
    return none;
  };
  std::erase_if(found, is_none);
  if (found.empty()) return {};
  const int64_t step =
      std::max_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
        return a.second.began_ns < b.second.began_ns;
      })->second.step;
  std::vector<runinfo::StepTimeline> timelines;
  for (auto& [path, timeline] : found) {
    if (timeline.step == step)
      timelines.push_back(std::move(timeline));
    else
      notes.push_back(
          fmt::format("left out: {}: the timeline is of step {}, the last one of step {}", path,
                      timeline.step, step));
  }
  return timelines;
}

// The last traced step, of all of the plan's ranks; else a note, and nothing.
std::vector<runinfo::ReadSlice> trace_in(const std::string& path, int64_t ranks,
                                         std::vector<std::string>& notes) {
  if (!fs::exists(path)) return {};
  try {
    std::vector<runinfo::ReadSlice> slices =
        runinfo::parse_trace(path, files::read_text_file(path, "trace of a run"));
    std::set<int64_t> found;
    int64_t last = 0;
    for (const runinfo::ReadSlice& slice : slices) {
      found.insert(slice.pid);
      last = std::max(last, slice.step);
    }
    if (found.empty() || *found.begin() != 0 || *found.rbegin() + 1 != ranks ||
        static_cast<int64_t>(found.size()) != ranks)
      throw ConfigError(fmt::format("{}: the trace has {} rank{}, but the plan has {}", path,
                                    found.size(), found.size() == 1 ? "" : "s", ranks));
    std::erase_if(slices, [last](const runinfo::ReadSlice& slice) { return slice.step != last; });
    return slices;
  } catch (const ConfigError& damage) {
    notes.push_back(fmt::format("left out: {}", damage.what()));
    return {};
  }
}

// A sample that was cut when its writer ended, or the disk was full, is one of many.
void read_usage(const std::string& path, RunRecord& run) {
  int64_t damaged = 0;
  std::string first;
  for_each_line(path, "samples of a run", [&](std::string_view line) {
    try {
      run.usage.push_back(system::parse_usage(line));
    } catch (const ConfigError& error) {
      if (damaged++ == 0) first = error.what();
    }
  });
  if (damaged > 0)
    run.notes.push_back(fmt::format("left out: {} damaged line{} of {}, the first: {}", damaged,
                                    damaged == 1 ? "" : "s", path, first));
}

}  // namespace

RunRecord read_run_record(const std::string& folder) {
  if (!fs::is_directory(folder))
    throw ConfigError(fmt::format("'{}' is not the folder of a run", folder));
  RunRecord run;
  run.folder = folder;
  const auto in = [&](const char* name) { return (fs::path(folder) / name).string(); };
  if (fs::exists(in("plan.yaml"))) {  // without it files of these names are a program's own
    run.plan = planfile::read_plan(in("plan.yaml"));
    if (fs::exists(in("report.json"))) run.report = load_run_report(in("report.json"));
    for_each_line(in("metrics.jsonl"), "metrics of a run",
                  [&](std::string_view line) { run.steps.push_back(step_of(line)); });
    run.trace = trace_in(in(runinfo::kTraceFile), run.plan->degrees.world(), run.notes);
    run.timelines = timelines_in(in("timeline"), run.plan->degrees.world(), run.notes);
  }
  read_usage(in("usage.jsonl"), run);
  if (!run.plan && run.usage.empty())
    throw ConfigError(
        fmt::format("'{}' has neither plan.yaml nor a sample in usage.jsonl to report", folder));
  if (run.plan && !run.report)
    run.notes.emplace_back("no report.json: the run has not ended, or it failed");
  if (run.plan && run.steps.empty()) {
    const std::vector<std::string>& metrics = run.plan->job.training.metrics;
    const bool is_kept = std::find(metrics.begin(), metrics.end(), "jsonl") != metrics.end();
    run.notes.emplace_back(is_kept ? "no step was completed"
                                   : "no metrics.jsonl: training.metrics does not ask for it");
  }
  if (run.usage.empty()) run.notes.emplace_back("no usage.jsonl: the run has no samples of usage");
  if (run.plan && run.timelines.empty() && !fs::exists(in("timeline")))
    run.notes.emplace_back("no timeline: the run made fewer than three steps");
  return run;
}

}  // namespace smp::runs
