#pragma once

#include <variant>

#include "plan/model_samples.h"
#include "smp/planner/search/search.h"

// Jobs that several tests of the planner plan.
namespace smp::test {

// A small GPT-2 on four CPU slots of a host.
inline JobSpec small_job() {
  JobSpec job;
  job.name = "small";
  job.model = small_gpt2();
  job.cluster.processes_per_host = 4;
  job.cluster.memory_per_process_bytes = int64_t{1} << 30;
  job.cluster.fp32_flops_per_s = 1e9;
  job.training.sequence_length = 16;
  job.training.global_batch = 8;
  return job;
}

inline constexpr search::SearchOptions kPractice{.strategy = choice::Strategy::kBestPractice};

inline Plan practical_plan_of(const JobSpec& job) {
  return std::get<Plan>(search::plan_job(job, kPractice).best);
}

}  // namespace smp::test
