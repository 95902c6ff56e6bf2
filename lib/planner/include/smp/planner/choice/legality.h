#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// The degrees that a job may have, by the rules of smp/plan/rules/degree_rules.h. Pure; any thread.
namespace smp::choice {

std::vector<int64_t> divisors(int64_t number);  // ascending
std::vector<int64_t> legal_tensor_degrees(const JobSpec& job);
std::vector<int64_t> legal_pipeline_degrees(const JobSpec& job, int64_t tensor);

// Throws ConfigError when a pinned degree can be legal in no layout of this job, with the equation
// and the nearest legal values.
void require_legal_pins(const JobSpec& job);

}  // namespace smp::choice
