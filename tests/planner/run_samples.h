#pragma once

#include <string>
#include <variant>

#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/layout/traffic.h"
#include "smp/plan/text/json.h"
#include "smp/planner/search/search.h"

// A plan of two stages, and what a run of it would leave.
namespace smp {

inline Plan small_plan() {
  const JobSpec job = jobfile::read_job(
      {{"job",
        "model: {family: gpt2, num_layers: 4, hidden_size: 64, num_heads: 4, vocab_size: 256, "
        "max_positions: 64}\n"
        "training: {sequence_length: 64, global_batch: 4}\n"
        "cluster: {processes_per_host: 2, device: cpu, memory_per_process: 1GiB, "
        "fp32_flops_per_s: 10G, memory_bytes_per_s: 9G, intra_host_bytes_per_s: 2G}\n"
        "parallel: {pipeline_parallel_degree: 2}\n"}});
  search::SearchResult result = search::plan_job(job);
  return std::get<Plan>(result.best);
}

// What the worker would write, had it counted `memory` and `time` times what was predicted.
inline text::Json report_of(const Plan& plan, double memory, double time) {
  text::Json json;
  const mesh::Degrees& degrees = plan.degrees;
  json["plan"] = {{"pipeline_parallel_degree", degrees.pipeline},
                  {"tensor_parallel_degree", degrees.tensor},
                  {"sharded_data_parallel_degree", degrees.shard},
                  {"replica_degree", degrees.replica}};
  json["steps"] = 10;
  json["measured_step_s"] = double(plan.predictions.step_ns) * 1e-9 * time;
  json["ranks"] = text::Json::array();
  for (int64_t rank = 0; rank < degrees.world(); ++rank) {
    const RankPrediction& predicted = plan.predictions.ranks[static_cast<size_t>(rank)];
    text::Json one;
    one["rank"] = rank;
    one["coordinates"] = {{"pipeline", rank}, {"tensor", 0}, {"shard", 0}, {"replica", 0}};
    one["measured_peak_bytes"] = int64_t(double(predicted.peak_bytes) * memory);
    one["measured_peak_phase"] = "step 3: backward";
    for (int i = 0; i < kMemoryCategories; ++i) {
      one["measured_bytes_by_category"][std::string(name_of(static_cast<MemoryCategory>(i)))] = 7;
    }
    one["wire"] = text::Json::array();
    for (const layout::Traffic& traffic : layout::step_traffic(plan, rank)) {
      one["wire"].push_back({{"label", traffic.label},
                             {"measured_calls", traffic.calls * 10},
                             {"measured_wire_bytes", traffic.wire_bytes * 10}});
    }
    json["ranks"].push_back(one);
  }
  return json;
}

}  // namespace smp
