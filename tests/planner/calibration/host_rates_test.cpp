#include "smp/planner/calibration/host_rates.h"

#include <doctest/doctest.h>

#include <cmath>

#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/planner/search/search.h"

using namespace smp;
using namespace smp::calibration;

namespace {

const std::string kCollectives =
    R"({"ranks":2,"collectives":[{"op":"all_reduce","bytes":16384,"seconds":1e-05},)"
    R"({"op":"all_reduce","bytes":4194304,"seconds":0.001}]})"
    "\n";
const std::string kEngine =
    R"({"instruction_set":"AVX2","matmul_flops_per_s":2e11,"memory_bytes_per_s":2e10,"steps":[)"
    R"({"ranks":2,"blocks":2,"hidden_size":256,"sequence_length":256,"microbatch_s":0.020,"update_s":0.001},)"
    R"({"ranks":2,"blocks":2,"hidden_size":128,"sequence_length":256,"microbatch_s":0.008,"update_s":0.0}]})"
    "\n";

// The model whose steps were measured, one sample a step on each of `processes` ranks.
JobSpec measured_job(int64_t hidden_size, int64_t processes) {
  return jobfile::read_job({{"job.yaml",
                             "model: {family: gpt2, num_layers: 2, num_heads: 2, vocab_size: 256, "
                             "max_positions: 256, tied_embeddings: true}\n"
                             "cluster: {name: local, device: cpu}\n"
                             "training: {sequence_length: 256, micro_batch: 1, microbatches: 1}\n"
                             "parallel: {tensor_parallel_degree: 1, pipeline_parallel_degree: 1, "
                             "sharding: none}\n"}},
                           {"model.hidden_size=" + std::to_string(hidden_size),
                            "cluster.processes_per_host=" + std::to_string(processes)});
}

double computing_s(JobSpec job, const std::string& lines) {
  set_host_rates(job.cluster, job.model, read_host_measurement(lines));
  const search::SearchResult result = search::plan_job(job);
  const time::TimeEstimate& time = result.best_priced->time;
  return time[time::TimePart::kMatmul] + time[time::TimePart::kMemoryBound];
}

void check_refused(const std::string& lines, const std::string& error) {
  CAPTURE(lines);
  CHECK_THROWS_WITH_AS(read_host_measurement(lines), error.c_str(), ConfigError);
}

}  // namespace

TEST_CASE("a microbatch of a measured model is predicted to take as long as it took") {
  CHECK(computing_s(measured_job(256, 2), kEngine) == doctest::Approx(0.020).epsilon(1e-3));
  CHECK(computing_s(measured_job(128, 2), kEngine) == doctest::Approx(0.008).epsilon(1e-3));
  // Four processes take turns on two CPUs; one has both.
  CHECK(computing_s(measured_job(256, 4), kEngine) == doctest::Approx(0.040).epsilon(1e-3));
  CHECK(computing_s(measured_job(256, 1), kEngine) ==
        doctest::Approx(0.020 / 2 / 0.9).epsilon(1e-3));
}

TEST_CASE("between measured widths the rate lies between, beyond them it is the nearest one") {
  const HostMeasurement measurement = read_host_measurement(kEngine);
  const auto rate = [&](int64_t hidden_size) {
    ClusterSpec cluster;
    cluster.processes_per_host = 2;
    ModelSpec model;
    model.hidden_size = hidden_size;
    set_host_rates(cluster, model, measurement);
    CHECK(cluster.fp32_flops_per_s == 2e11);
    CHECK(cluster.memory_bytes_per_s == 2e10);
    return cluster.matmul_efficiency;
  };
  CHECK(rate(128) < rate(192));
  CHECK(rate(192) < rate(256));
  CHECK(rate(64) == rate(128));
  CHECK(rate(4096) == rate(256));
  CHECK(rate(181) == doctest::Approx((rate(128) + rate(256)) / 2).epsilon(1e-2));
}

TEST_CASE("measured collectives are points, and give latency and bandwidth for other groups") {
  ClusterSpec cluster;
  set_host_rates(cluster, {}, read_host_measurement(kCollectives + kEngine));
  REQUIRE(cluster.intra_host_points.size() == 2);
  CHECK(cluster.intra_host_points[0].ranks == 2);
  CHECK(cluster.intra_host_points[1].bytes == 4194304);
  CHECK(cluster.intra_host_bytes_per_s == doctest::Approx(4194304 / 0.001));
  CHECK(cluster.intra_host_latency_s == doctest::Approx(5e-6));
}

TEST_CASE("host_rates() are the numbers that are set") {
  ClusterSpec cluster;
  for (const HostRate& rate : host_rates()) cluster.*rate.value = -1;
  set_host_rates(cluster, {}, read_host_measurement(kCollectives + kEngine));
  for (const HostRate& rate : host_rates()) {
    CAPTURE(rate.key);
    CHECK(cluster.*rate.value > 0);
  }
}

TEST_CASE("a measurement that says nothing, or nonsense, is refused") {
  check_refused("", "the measurement has no steps of the engine");
  check_refused(kCollectives, "the measurement has no steps of the engine");
  check_refused("Segmentation fault\n", "the measurement is not what smp-bench host prints");
  check_refused(R"({"steps":[]})", "the measurement has no number 'matmul_flops_per_s'");
  check_refused(
      R"({"steps":[],"matmul_flops_per_s":-1})",
      "the measurement says matmul_flops_per_s -1: expected a number from 1e-12 to 1e+18");
  check_refused(R"({"ranks":2.5,"collectives":[]})",
                "the measurement says ranks 2.5: expected a whole number");
  check_refused(R"({"ranks":2,"collectives":[{"op":"gossip","bytes":1,"seconds":1}]})",
                "the measurement has a collective of an unknown kind");
}
