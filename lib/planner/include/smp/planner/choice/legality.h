#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// Which degrees a job may have: one small rule each, said as the equation that failed. Pure.
//   t divides processes_per_host and the heads, and divides the KV heads or is a multiple of them;
//   above 1 the batch is the tensor group's (prescaled_batch)
//   p is at most the layers; p*t divides processes_per_host or is a multiple of it, and divides the
//   world size
//   z divides the data-parallel degree d = world / (p*t)
namespace smp::choice {

int64_t world_size(const ClusterSpec& cluster);

// What is wrong with a degree; nothing = legal.
std::optional<std::string> tensor_problem(const JobSpec& job, int64_t tensor);
std::optional<std::string> pipeline_problem(const JobSpec& job, int64_t tensor, int64_t pipeline);
std::optional<std::string> shard_problem(int64_t data, int64_t shard);

std::vector<int64_t> divisors(int64_t number);  // ascending
std::vector<int64_t> legal_tensor_degrees(const JobSpec& job);
std::vector<int64_t> legal_pipeline_degrees(const JobSpec& job, int64_t tensor);

// Throws ConfigError when a pinned degree can be legal in no layout of this job, with the equation
// and the nearest legal values.
void require_legal_pins(const JobSpec& job);

}  // namespace smp::choice
