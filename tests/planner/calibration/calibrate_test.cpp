#include "smp/planner/calibration/calibrate.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/planner/search/search.h"
#include "smp/planner/time/time_model.h"

using namespace smp;
using namespace smp::calibration;
using namespace smp::jobfile;
using namespace smp::search;
using namespace smp::time;

namespace {

const std::string kModel =
    "model: {family: gpt2, num_layers: 4, hidden_size: 256, num_heads: 4, vocab_size: 256, "
    "max_positions: 256}\n"
    "training: {sequence_length: 256, global_batch: 8, precision: fp32}\n";
const std::string kCluster =
    "cluster:\n  name: test\n  processes_per_host: 4\n  device: cpu\n  memory_per_process: 4GiB\n"
    "  fp32_flops_per_s: 95G\n  matmul_efficiency: 0.5\n  memory_bytes_per_s: 9G\n"
    "  intra_host_bytes_per_s: 2G\n  intra_host_latency_s: 0.00005\n";

JobSpec job_with(const std::string& parallel, const std::string& cluster = kCluster) {
  return read_job({{"model", kModel}, {"cluster", cluster}, {"parallel", parallel}});
}

CalibrationRun run_of(const std::string& parallel, const ClusterSpec& real) {
  SearchResult result = plan_job(job_with(parallel));
  CalibrationRun run;
  run.name = parallel;
  run.plan = std::get<Plan>(result.best);
  Plan measured = run.plan;
  measured.job.cluster = real;
  run.step_s = double(predict_time(measured).step_ns) * 1e-9;
  return run;
}

std::vector<CalibrationRun> runs_on(const ClusterSpec& real) {
  std::vector<CalibrationRun> runs;
  for (const char* degrees :
       {"parallel: {tensor_parallel_degree: 1, pipeline_parallel_degree: 1}",
        "parallel: {tensor_parallel_degree: 2, pipeline_parallel_degree: 1}",
        "parallel: {tensor_parallel_degree: 4, pipeline_parallel_degree: 1}",
        "parallel: {tensor_parallel_degree: 1, pipeline_parallel_degree: 2}",
        "parallel: {tensor_parallel_degree: 2, pipeline_parallel_degree: 2}",
        "parallel: {tensor_parallel_degree: 1, pipeline_parallel_degree: 4}"}) {
    runs.push_back(run_of(degrees, real));
  }
  return runs;
}

std::string error_of(const ClusterSpec& base, const std::vector<CalibrationRun>& runs,
                     const std::vector<std::string>& keys) {
  try {
    calibrate(base, runs, keys);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing";
}

std::filesystem::path folder_with(const std::string& name, const std::string& text) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("smp-{}", name);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name) << text;
  return folder;
}

}  // namespace

TEST_CASE("calibrate finds the constants that made the runs") {
  const ClusterSpec base = job_with("parallel: {}").cluster;
  ClusterSpec real = base;
  real.matmul_efficiency = 0.8;
  real.intra_host_bytes_per_s = 0.7e9;
  const Calibration calibration =
      calibrate(base, runs_on(real), {"matmul_efficiency", "intra_host_bytes_per_s"});
  CHECK(calibration.cluster.matmul_efficiency == doctest::Approx(0.8).epsilon(0.02));
  CHECK(calibration.cluster.intra_host_bytes_per_s == doctest::Approx(0.7e9).epsilon(0.02));
  for (const CalibrationResidual& run : calibration.residuals) {
    CHECK(run.after_s == doctest::Approx(run.measured_s).epsilon(0.01));
  }
  CHECK(calibration.cluster.time_error < 0.01);
  CHECK(calibration.cluster.time_error > 0);
}

TEST_CASE("calibrate without names fits what the runs tell apart") {
  const ClusterSpec base = job_with("parallel: {}").cluster;
  ClusterSpec real = base;
  real.matmul_efficiency = 0.3;
  const Calibration calibration = calibrate(base, runs_on(real), {});
  CHECK(calibration.fitted.size() >= 2);
  CHECK(calibration.fitted.size() < 6);
  CHECK(calibration.fitted[0].key == "fp32_flops_per_s");
  CHECK(std::find(calibration.left.begin(), calibration.left.end(),
                  "inter_host_bytes_per_s: the cluster file does not give it") !=
        calibration.left.end());
}

TEST_CASE("calibrate refuses what the runs do not determine") {
  const ClusterSpec base = job_with("parallel: {}").cluster;
  const std::vector<CalibrationRun> runs = runs_on(base);
  const std::vector<CalibrationRun> one = {runs[0]};
  CHECK(error_of(base, one, {}) ==
        "a fit needs 2 or more runs: one run does not separate a constant from noise");
  CHECK(error_of(base, one, {"matmul_efficiency", "memory_bytes_per_s"}) ==
        "2 constants cannot be fitted to 1 run");
  CHECK(error_of(base, runs, {"inter_host_bytes_per_s"}) ==
        "inter_host_bytes_per_s cannot be fitted: the cluster file does not give it");
  CHECK(error_of(base, runs, {"matmul_efficiency", "fp32_flops_per_s"}) ==
        "fp32_flops_per_s cannot be fitted: the runs do not separate it from matmul_efficiency");
  CHECK(error_of(base, runs, {"matmul_eficiency"}) ==
        "--fit: unknown constant 'matmul_eficiency', did you mean 'matmul_efficiency'?; known "
        "constants are matmul_efficiency, fp32_flops_per_s, inter_host_bytes_per_s, "
        "intra_host_bytes_per_s, memory_bytes_per_s, host_link_bytes_per_s, intra_host_latency_s, "
        "inter_host_latency_s, kernel_launch_s");
  ClusterSpec linked = base;
  linked.host_link_bytes_per_s = 1e10;
  CHECK(error_of(linked, runs, {"host_link_bytes_per_s"}) ==
        "host_link_bytes_per_s cannot be fitted: no run depends on it");
  ClusterSpec cuda = base;
  cuda.device = DeviceKind::kCuda;
  CHECK(error_of(cuda, one, {"matmul_efficiency"})
            .find(": the run and the cluster have different kinds of devices") !=
        std::string::npos);
}

TEST_CASE("calibrate writes a cluster file that reads back") {
  const ClusterSpec base = job_with("parallel: {}").cluster;
  ClusterSpec real = base;
  real.matmul_efficiency = 0.25;
  std::vector<CalibrationRun> runs = runs_on(real);
  runs[0].peak_bytes = runs[0].plan.predictions.ranks[0].peak_bytes;
  runs[0].device_bytes = *runs[0].peak_bytes + 1'000'000;
  const Calibration calibration = calibrate(base, runs, {"matmul_efficiency"});
  const std::string yaml = calibration_yaml(calibration, "2026-01-02");
  CHECK(yaml.rfind("# test, fitted to 6 measured runs by smp-plan calibrate on 2026-01-02.\n"
                   "#   matmul_efficiency: 0.25, was 0.5\n",
                   0) == 0);
  const ClusterSpec again = job_with("parallel: {}", yaml).cluster;
  CHECK(again.matmul_efficiency == doctest::Approx(0.25).epsilon(0.01));
  CHECK(again.reserved_bytes == 1'000'000);
  CHECK(again.memory_error == doctest::Approx(0.005));
  CHECK(again.time_error > 0);
}

TEST_CASE("calibrate: broken lists of runs") {
  const auto error = [](const std::string& text) {
    const auto folder = folder_with("runs.jsonl", text);
    std::string what = "nothing";
    try {
      load_runs((folder / "runs.jsonl").string());
    } catch (const ConfigError& caught) {
      what = caught.what();
    }
    const std::string prefix = (folder / "runs.jsonl").string();
    std::filesystem::remove_all(folder);
    return what.rfind(prefix, 0) == 0 ? what.substr(prefix.size()) : what;
  };
  CHECK(error("\n \n") == ": no run");
  CHECK(error("{\"plan\": }\n") == ":1:10: no JSON");
  CHECK(error("[1]\n") == ":1: not a JSON object");
  CHECK(error("\n{\"steps\": 1}\n") == ":2: unknown key 'steps'");
  CHECK(error("{\"plan\": \"a.yaml\"}\n") == ":1: needs 'report', or 'plan' and 'measured_step_s'");
  CHECK(error("{\"plan\": 1, \"measured_step_s\": 1}\n") == ":1: 'plan' is not a path");
}
