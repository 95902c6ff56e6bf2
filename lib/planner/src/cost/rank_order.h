#pragma once

#include <cstdint>

#include "links/link_model.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

// Where the groups of a layout sit, from the order in which ranks are numbered: tensor (with
// context) fastest, then pipeline, then data ("cluster", SMP's DPT), or pipeline last (Megatron-LM,
// DeepSpeed, FSDP); as `placement_strategy` says where it names an order. By arithmetic: no rank is
// enumerated.
namespace smp::cost {

links::Placement tensor_placement(const choice::LayoutChoice& choice, const JobSpec& job);
links::Placement context_placement(const choice::LayoutChoice& choice, const JobSpec& job);
// Of the context ranks those that exchange heads, and those that pass keys and values on.
links::Placement exchange_placement(const choice::LayoutChoice& choice, const JobSpec& job);
links::Placement ring_placement(const choice::LayoutChoice& choice, const JobSpec& job);
links::Placement expert_placement(const choice::LayoutChoice& choice, const JobSpec& job);
// How the ranks of a stage that hold the same parts of its matrices share weights, gradients and
// optimizer state: `shards` parts, each on `replicas` ranks. Context-parallel ranks are among them.
struct StateRanks {
  int64_t shards = 1, replicas = 1;

  int64_t all() const { return shards * replicas; }
};
StateRanks state_ranks(const JobSpec& job, const choice::LayoutChoice& choice);

// Ranks that hold the same part of the experts: of those that share one copy of sharded states, or
// all.
links::Placement expert_states_placement(const choice::LayoutChoice& choice, const JobSpec& job);
// Ranks that share one copy of the sharded state; those that hold the same shard; all of both.
links::Placement shard_placement(const choice::LayoutChoice& choice, const JobSpec& job);
links::Placement replica_placement(const choice::LayoutChoice& choice, const JobSpec& job);
links::Placement data_placement(const choice::LayoutChoice& choice, const JobSpec& job);

// Of p - 1 boundaries between stages, how many lie between hosts.
double boundaries_between_hosts(const choice::LayoutChoice& choice, const JobSpec& job);

// Bytes that the groups of rank 0 cost it on CPUs: those of rank_groups() of lib/plan. Of them that
// of tied embeddings, which only the stages that hold one are in; 0 where one stage holds both.
double group_memory(const choice::LayoutChoice& choice, const JobSpec& job);
double tied_group_memory(const choice::LayoutChoice& choice, const JobSpec& job);

}  // namespace smp::cost
