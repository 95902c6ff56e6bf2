#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "screen.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/planner/calibration/calibrate.h"

namespace smp {
namespace {

constexpr const char* kCalibrateDescription =
    R"(Fits constants of a cluster to measured runs, and writes a cluster file with the fitted constants and
the remaining errors. A run is a report.json with plan.yaml in the same folder, or a line of a *.jsonl
file: {"plan": "a.yaml", "measured_step_s": 0.2}. Constants that the runs do not determine keep their
values; naming such a constant with --fit is an error.

Examples:
  smp-plan calibrate runs/*/report.json --cluster cpu-4 -o cluster.yaml
  smp-plan calibrate runs.jsonl --cluster p4d.24xlarge --fit matmul_efficiency,inter_host_bytes_per_s
)";

struct CalibrateRequest {
  std::vector<std::string> runs;
  std::string cluster;
  std::string output;
  std::string date;
  std::vector<std::string> keys;
};

// A cluster file by itself is no whole job: any model makes it one.
ClusterSpec read_cluster(const std::string& name_or_path) {
  const jobfile::JobSource any_model{
      "calibrate",
      "model: {family: gpt2, num_layers: 1, hidden_size: 64, num_heads: 1, "
      "vocab_size: 256, max_positions: 8}\ntraining: {sequence_length: 8}\n"};
  return jobfile::read_job({any_model, jobfile::cluster_source(name_or_path)}).cluster;
}

// The day of the latest run, so that the same runs give the same file.
std::string day_of(const std::vector<std::string>& paths) {
  std::time_t latest = 0;
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) latest = std::max(latest, status.st_mtime);
  }
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(latest));
}

ExitCode run_calibrate(const CalibrateRequest& request) {
  const ClusterSpec base = read_cluster(request.cluster);
  std::vector<calibration::CalibrationRun> runs;
  for (const std::string& path : request.runs) {
    for (calibration::CalibrationRun& run : calibration::load_runs(path))
      runs.push_back(std::move(run));
  }
  const calibration::Calibration calibration = calibration::calibrate(base, runs, request.keys);
  const std::string yaml = calibration::calibration_yaml(
      calibration, request.date.empty() ? day_of(request.runs) : request.date);
  if (request.output.empty() || request.output == "-") {
    std::fputs(yaml.c_str(), stdout);
    return ExitCode::kOk;
  }
  files::write_text_file(request.output, yaml);
  print(stdout, fmt::format("{}written to {}\n", calibration::calibration_text(calibration),
                            request.output));
  return ExitCode::kOk;
}

}  // namespace

void add_calibrate_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<CalibrateRequest>();
  CLI::App* command = app.add_subcommand("calibrate", "fit a cluster's constants to measured runs");
  command->description(kCalibrateDescription);
  command->add_option("runs", request->runs, "report.json or *.jsonl of measured runs")->required();
  command
      ->add_option("--cluster", request->cluster, "cluster file to start from, or a known cluster")
      ->type_name("FILE")
      ->required();
  command->add_option("-o,--output", request->output, "write the cluster to FILE")
      ->type_name("FILE")
      ->check(not_empty);
  command
      ->add_option("--fit", request->keys,
                   "fit these constants; an error if the runs do not determine them")
      ->type_name("KEY,...")
      ->delimiter(',');
  command
      ->add_option("--date", request->date,
                   "date in the cluster file; default: date of the latest run")
      ->type_name("YYYY-MM-DD");
  command->callback([request, &run] { run = [request] { return run_calibrate(*request); }; });
}

}  // namespace smp
