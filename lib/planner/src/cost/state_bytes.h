#pragma once

#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::cost {

// Of weights and activations as they are computed with.
double element_bytes(Precision precision);

// Bytes of each parameter's states as the framework holds them.
struct StateBytes {
  double weight = 0;
  double gradient = 0;
  double gradient_copy = 0;  // fp32, beside 16-bit gradients
  double master = 0;
  double momentum = 0;
  double variance = 0;
  double compute = 0;        // of a weight as matmuls read it
  double unreduced = 0;      // of a gradient before its reduce-scatter, with the message's copy
  bool copy_sharded = true;  // the copy is the optimizer's, of its shard

  double total() const { return weight + gradient + gradient_copy + master + momentum + variance; }
};
StateBytes state_bytes(const JobSpec& job, const choice::LayoutChoice& choice);

// Ranks over which sharded states are spread: for dense parameters and for experts, whose replicas
// are fewer. 1 without sharding.
struct ShardRanks {
  double dense = 1;
  double experts = 1;
};
ShardRanks shard_ranks(const JobSpec& job, const choice::LayoutChoice& choice);

}  // namespace smp::cost
