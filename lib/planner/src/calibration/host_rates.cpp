#include "smp/planner/calibration/host_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "smp/plan/base/errors.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/text/json.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_seconds.h"

namespace smp::calibration {
namespace {

constexpr double kThreadsTogether = 0.9;
// Of a microbatch: at least so much is matmuls, whatever the kernels' bytes would take from memory.
// Small models' tensors stay in caches.
constexpr double kLeastMatmulShare = 0.5;

// Seconds, bytes, flops a second: nothing that exists lies beyond.
constexpr double kLeast = 1e-12, kMost = 1e18;

double positive(const text::Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number())
    throw ConfigError(fmt::format("the measurement has no number '{}'", key));
  const double value = found->get<double>();
  if (!(value >= kLeast && value <= kMost)) {
    throw ConfigError(fmt::format("the measurement says {} {}: expected a number from {} to {}",
                                  key, value, kLeast, kMost));
  }
  return value;
}

int64_t positive_integer(const text::Json& json, const char* key) {
  const double value = positive(json, key);
  if (value != std::floor(value) || value > 1e12)
    throw ConfigError(
        fmt::format("the measurement says {} {}: expected a whole number", key, value));
  return static_cast<int64_t>(value);
}

mesh::CollectiveOp op_of(const text::Json& json) {
  const auto found = json.find("op");
  for (const mesh::CollectiveOp op : kPointOps) {
    if (found != json.end() && found->is_string() && name_of(op) == found->get<std::string>())
      return op;
  }
  throw ConfigError("the measurement has a collective of an unknown kind");
}

void read_collectives(const text::Json& line, HostMeasurement& measurement) {
  const int64_t ranks = positive_integer(line, "ranks");
  for (const text::Json& time : line.at("collectives")) {
    measurement.points.push_back(
        {ranks, positive_integer(time, "bytes"), positive(time, "seconds"), op_of(time)});
  }
}

void read_engine(const text::Json& line, HostMeasurement& measurement) {
  measurement.matmul_flops_per_s = positive(line, "matmul_flops_per_s");
  measurement.memory_bytes_per_s = positive(line, "memory_bytes_per_s");
  for (const text::Json& one : line.at("steps")) {
    measurement.cpus = positive_integer(one, "ranks");
    measurement.steps.push_back(
        {positive_integer(one, "blocks"), positive_integer(one, "hidden_size"),
         positive_integer(one, "sequence_length"), positive(one, "microbatch_s"),
         std::clamp(one.value("update_s", 0.0), 0.0, kMost)});
  }
}

// The model whose steps were measured.
JobSpec measured_job(const HostSteps& steps) {
  JobSpec job;
  ModelSpec& model = job.model;
  model::set_family(model, ModelFamily::kGpt2);
  model.num_layers = steps.blocks;
  model.hidden_size = steps.hidden_size;
  model.head_dim = 64;
  model.num_heads = model.num_kv_heads = std::max<int64_t>(1, steps.hidden_size / 64);
  model.ffn_hidden_size = 4 * steps.hidden_size;
  model.vocab_size = 256;
  model.max_positions = steps.sequence_length;
  model.tied_embeddings = true;
  job.training.sequence_length = steps.sequence_length;
  job.training.precision = Precision::kFp32;
  return job;
}

// The rate at which its matmuls must run for the time model to say what was measured.
double matmul_rate(const HostSteps& steps, double memory_bytes_per_s) {
  JobSpec job = measured_job(steps);
  job.cluster.fp32_flops_per_s = job.cluster.matmul_efficiency = 1;  // seconds are flops
  job.cluster.memory_bytes_per_s = memory_bytes_per_s;
  choice::LayoutChoice choice;
  choice.precision = Precision::kFp32;
  const cost::LayerSeconds seconds = cost::layer_seconds(job, choice);
  double flops = 0, memory_s = 0;
  const auto add = [&](const cost::CallSeconds& call, double calls) {
    flops += calls * (call.matmul_forward + call.matmul_backward);
    memory_s += calls * (call.memory_forward + call.memory_backward);
  };
  add(seconds.of(model::LayerKind::kBlock), static_cast<double>(steps.blocks));
  add(seconds.of(model::LayerKind::kEmbedding), 1);
  add(seconds.of(model::LayerKind::kHead), 1);
  return flops / std::max(steps.microbatch_s - memory_s, kLeastMatmulShare * steps.microbatch_s);
}

// By the logarithm of the width.
double rate_at(const HostMeasurement& measurement, int64_t hidden_size) {
  double width = std::log2(static_cast<double>(std::max<int64_t>(1, hidden_size)));
  double below_width = 0, below = 0;
  for (const HostSteps& steps : measurement.steps) {
    const double here = std::log2(static_cast<double>(steps.hidden_size));
    const double rate = matmul_rate(steps, measurement.memory_bytes_per_s);
    if (width <= here) {
      if (below == 0) return rate;
      return below + (rate - below) * (width - below_width) / (here - below_width);
    }
    below_width = here;
    below = rate;
  }
  return below;
}

// What holds where no group of that size was measured: of the smallest group, its shortest and its
// longest all-reduce.
void set_links(ClusterSpec& cluster, const std::vector<LinkPoint>& points) {
  const LinkPoint* shortest = nullptr;
  const LinkPoint* longest = nullptr;
  for (const LinkPoint& point : points) {
    if (point.op != mesh::CollectiveOp::kAllReduce || point.ranks != points.front().ranks) continue;
    if (shortest == nullptr || point.bytes < shortest->bytes) shortest = &point;
    if (longest == nullptr || point.bytes > longest->bytes) longest = &point;
  }
  if (shortest == nullptr) return;
  const double ranks = static_cast<double>(shortest->ranks);
  const double moved = 2 * static_cast<double>(longest->bytes) * (ranks - 1) / ranks;
  cluster.intra_host_bytes_per_s = moved / longest->seconds;
  cluster.intra_host_latency_s = shortest->seconds / (2 * std::max(1.0, std::log2(ranks)));
}

}  // namespace

HostMeasurement read_host_measurement(std::string_view lines) {
  HostMeasurement measurement;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string line(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.empty()) continue;
    try {
      const text::Json json = text::Json::parse(line);
      if (json.contains("collectives")) read_collectives(json, measurement);
      if (json.contains("steps")) read_engine(json, measurement);
    } catch (const text::Json::exception&) {
      throw ConfigError("the measurement is not what smp-bench host prints");
    }
  }
  if (measurement.steps.empty()) throw ConfigError("the measurement has no steps of the engine");
  std::sort(measurement.steps.begin(), measurement.steps.end(),
            [](const HostSteps& a, const HostSteps& b) { return a.hidden_size < b.hidden_size; });
  return measurement;
}

void set_host_rates(ClusterSpec& cluster, const ModelSpec& model,
                    const HostMeasurement& measurement) {
  const int64_t processes = std::max<int64_t>(1, cluster.processes_per_host);
  const int64_t threads = std::max<int64_t>(1, measurement.cpus / processes);
  // More processes than CPUs take turns on them.
  double share =
      std::min(1.0, static_cast<double>(measurement.cpus) / static_cast<double>(processes));
  if (threads > 1) share = kThreadsTogether * static_cast<double>(threads);
  const double rate = rate_at(measurement, model.hidden_size);
  const double peak = std::max(rate, measurement.matmul_flops_per_s);
  cluster.fp32_flops_per_s = share * peak;
  cluster.matmul_efficiency = rate / peak;
  cluster.memory_bytes_per_s = share * measurement.memory_bytes_per_s;
  cluster.intra_host_points = measurement.points;
  set_links(cluster, measurement.points);
}

std::vector<HostRate> host_rates() {
  return {{"cluster.fp32_flops_per_s", &ClusterSpec::fp32_flops_per_s},
          {"cluster.matmul_efficiency", &ClusterSpec::matmul_efficiency},
          {"cluster.memory_bytes_per_s", &ClusterSpec::memory_bytes_per_s},
          {"cluster.intra_host_bytes_per_s", &ClusterSpec::intra_host_bytes_per_s},
          {"cluster.intra_host_latency_s", &ClusterSpec::intra_host_latency_s}};
}

}  // namespace smp::calibration
