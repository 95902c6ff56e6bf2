#include "smp/launcher/run/run_summary.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "smp/launcher/process/plain_file.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/plan/spec/plan.h"
#include "smp/plan/text/json.h"

namespace smp::run {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// To tenths, and no "-0.0".
double percent_off(double predicted, double measured) {
  if (measured <= 0) return 0;
  const double tenths = std::round(1000 * (predicted - measured) / measured);
  return tenths == 0 ? 0 : tenths / 10;
}

std::string degrees_text(const mesh::Degrees& degrees) {
  return fmt::format("pipeline {} x tensor {} x data {} (shard {} x replica {})", degrees.pipeline,
                     degrees.tensor, degrees.data(), degrees.shard, degrees.replica);
}

std::string rank_line(const text::Json& rank) {
  const int64_t predicted = rank.at("predicted_peak_bytes").get<int64_t>();
  const int64_t measured = rank.at("measured_peak_bytes").get<int64_t>();
  return fmt::format("    rank {:<3} {:8.2f} MiB predicted {:8.2f} MiB measured  {:+5.1f} %\n",
                     rank.at("rank").get<int64_t>(), mib(predicted), mib(measured),
                     percent_off(static_cast<double>(predicted), static_cast<double>(measured)));
}

std::string summary_of(const Plan& plan, const text::Json& report, const std::string& run_dir) {
  std::string text = fmt::format("\nrun {}\n", run_dir);
  text += fmt::format("  layout   {}\n", degrees_text(plan.degrees));
  for (const std::string& reason : plan.reasons) text += fmt::format("  why      {}\n", reason);
  text += fmt::format(
      "  loss     {:.4f} -> {:.4f} in {} steps\n", report.at("loss").at("first").get<double>(),
      report.at("loss").at("last").get<double>(), report.at("steps").get<int64_t>());
  if (report.contains("ended_early"))
    text += fmt::format("  ended    {}\n", report.at("ended_early").get<std::string>());
  const double predicted_s = report.at("predicted_step_s").get<double>();
  const double measured_s = report.at("measured_step_s").get<double>();
  text += fmt::format("  speed    {:.0f} tokens/s; a step takes {:.1f} ms, {}\n",
                      report.at("tokens_per_s").get<double>(), 1e3 * measured_s,
                      predicted_s > 0 ? fmt::format("predicted {:.1f} ms", 1e3 * predicted_s)
                                      : "not predicted: the cluster names no rates");
  const int64_t limit = plan.job.cluster.memory_per_process_bytes;
  text += fmt::format("  memory   peak of each rank, {}\n",
                      limit > 0 ? fmt::format("limit {:.2f} MiB", mib(limit)) : "no limit");
  for (const text::Json& rank : report.at("ranks")) text += rank_line(rank);
  if (std::filesystem::exists(run_dir + "/weights"))  // not of a run that ended on request
    text += fmt::format("  weights  {}/weights (safetensors + config.json, Hugging Face names)\n",
                        run_dir);
  std::string numbers;
  for (const std::string& kind : plan.job.training.metrics)
    numbers +=
        kind == "jsonl" ? "metrics.jsonl, " : std::string(runinfo::kTensorBoardFolder) + "/, ";
  text += fmt::format("  report   {}/report.json, {}logs/\n", run_dir, numbers);
  return text;
}

}  // namespace

std::string run_summary(const Plan& plan, const std::string& run_dir) {
  const std::string path = run_dir + "/report.json";
  const std::string text = process::read_plain_file(path, kMostBytes);
  if (text.empty()) throw ConfigError(fmt::format("{}: the run wrote no report", path));
  try {
    return summary_of(plan, text::Json::parse(text), run_dir);
  } catch (const text::Json::exception& error) {
    throw ConfigError(fmt::format("{}: not a report of a run: {}", path, error.what()));
  }
}

}  // namespace smp::run
