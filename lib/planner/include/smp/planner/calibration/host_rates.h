#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// The rates of a cluster that is this host, from what `smp-bench host` has measured on it. Pure;
// any thread.
namespace smp::calibration {

// The engine's steps of small GPT-2 models on ranks of one thread that run at the same time, one a
// CPU (smp/runtime/training/measure_steps.h).
struct HostSteps {
  int64_t blocks = 0;
  int64_t hidden_size = 0;
  int64_t sequence_length = 0;
  double microbatch_s = 0;  // forward and backward of one sample
  double update_s = 0;
};

struct HostMeasurement {
  int64_t cpus = 0;
  double matmul_flops_per_s = 0;  // of a CPU: large fp32 products
  double memory_bytes_per_s = 0;  // of a CPU, while all are busy
  std::vector<HostSteps> steps;   // ascending by hidden_size
  std::vector<LinkPoint> points;  // collectives inside the host
};

// From the lines that smp-bench host prints. Throws ConfigError if something is missing, or is no
// number from 1e-12 to 1e18.
HostMeasurement read_host_measurement(std::string_view lines);

// Sets the rates of `cluster` to those of its processes when they share the CPUs that were
// measured, at the width of `model`. matmul_efficiency is such that a block of that width, its
// kernels and their launches take as long as measured: between measured widths by interpolation,
// beyond them as the nearest one. A process of several CPUs is taken to be 0.9 times as fast as
// they are together (assumed).
void set_host_rates(ClusterSpec& cluster, const ModelSpec& model,
                    const HostMeasurement& measurement);

// The numbers that it sets, beside the points of collectives.
struct HostRate {
  std::string key;  // "cluster.fp32_flops_per_s"
  double ClusterSpec::*value;
};
std::vector<HostRate> host_rates();

}  // namespace smp::calibration
