#include "stage_terms.h"

#include <algorithm>

#include "smp/plan/parameter_counts.h"
#include "smp/planner/habits.h"
#include "state_bytes.h"

namespace smp {
namespace {

// PyTorch holds one cuBLAS workspace for each of the two threads that launch matmuls, forward and
// autograd (aten/src/ATen/cuda/CublasHandlePool.cpp: ":4096:2:16:8", 32 MiB from Hopper on;
// deterministic runs set CUBLAS_WORKSPACE_CONFIG=:4096:8), and Transformer Engine one of its own
// (get_cublas_workspace_size_bytes: 4 MiB, 32 MiB from Hopper on), one more for each of the streams
// over which it spreads the matmuls of experts. An fp8 unit marks Hopper and later.
constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kTorchWorkspace = 8.125 * kMiB;
constexpr double kDeterministicWorkspace = 32 * kMiB;
constexpr double kLargeWorkspace = 32 * kMiB;
constexpr double kEngineWorkspace = 4 * kMiB;
constexpr double kExpertStreams = 4;

double library_workspace(const JobSpec& job) {
  const bool large = job.cluster.fp8_flops_per_s > 0;
  const double torch = large                        ? kLargeWorkspace
                       : job.training.deterministic ? kDeterministicWorkspace
                                                    : kTorchWorkspace;
  double engines = 0;
  if (habits_of(job).transformer_engine)
    engines = job.model.num_experts > 0 ? 1 + kExpertStreams : 1;
  return 2 * torch + engines * (large ? kLargeWorkspace : kEngineWorkspace);
}

// Groups of several ranks that a rank is in, each with buffers of its own.
int communicators(const LayoutChoice& choice) {
  return (choice.data() * choice.context > 1) + (choice.shard > 1 && choice.replica > 1) +
         (choice.tensor > 1) + (choice.pipeline > 1) + (choice.context > 1) + (choice.expert > 1);
}

void add_constants(TermBytes& bytes, const JobSpec& job, const LayoutChoice& choice) {
  const Habits& habits = habits_of(job);
  at(bytes, Term::kWorkspace) += library_workspace(job);
  // A cluster's reserved_memory stands for both.
  if (job.cluster.reserved_bytes > 0) return;
  at(bytes, Term::kContext) = habits.fixed_bytes;
  at(bytes, Term::kCommunicators) = communicators(choice) * habits.communicator_bytes;
}

}  // namespace

double total(const TermBytes& bytes) {
  double sum = 0;
  for (const double term : bytes) sum += term;
  return sum;
}

StageHolds stage_holds(const ModelSpec& model, const LayoutChoice& choice, int64_t stage) {
  StageHolds holds{stage_blocks(model, choice, stage), stage == 0, holds_head(choice, stage)};
  // What predicts further tokens stays with the head, and has experts if the last block has.
  if (holds.head && model.num_mtp_layers > 0) {
    const auto further = static_cast<double>(model.num_mtp_layers);
    (has_experts(model, model.num_layers - 1) ? holds.blocks.moe : holds.blocks.dense) += further;
  }
  return holds;
}

StageParameters parameters_of(const JobSpec& job, const LayerBytes& layers,
                              const StageHolds& holds) {
  StageParameters parameters;
  parameters.dense =
      holds.blocks.dense * layers.block_parameters + holds.blocks.moe * layers.moe_block_parameters;
  parameters.experts = holds.blocks.moe * layers.expert_parameters;
  if (holds.embedding) parameters.dense += layers.embedding_parameters;
  if (holds.head) {
    parameters.dense += layers.head_parameters;
    // Beside a block, each further token has three norms and a projection.
    parameters.dense += static_cast<double>(job.model.num_mtp_layers) * layers.mtp_parameters;
  }
  return parameters;
}

StageParameters stage_parameters(const JobSpec& job, const LayoutChoice& choice,
                                 const LayerBytes& layers, int64_t stage) {
  return parameters_of(job, layers, stage_holds(job.model, choice, stage));
}

StageTerms stage_terms(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& layers,
                       const StageHolds& holds) {
  const ModelSpec& model = job.model;
  const Habits& habits = habits_of(job);
  const bool cpu = job.cluster.device == DeviceKind::kCpu;
  const StageParameters parameters = parameters_of(job, layers, holds);
  const StateBytes state = state_bytes(job, choice);
  const ShardRanks ranks = shard_ranks(job, choice);
  const double all = parameters.dense + parameters.experts;
  const double sharded = parameters.dense / ranks.dense + parameters.experts / ranks.experts;

  // A tied table's copy on the last stage may have no optimizer state.
  double updated = choice.sharding >= Sharding::kOptimizerState ? sharded : all;
  if (holds.head && !holds.embedding && model.tied_embeddings && !habits.tied_copy_has_optimizer) {
    const double copy = vocabulary_rows(job, choice) * static_cast<double>(model.hidden_size);
    updated -= copy / (choice.sharding >= Sharding::kOptimizerState ? ranks.dense : 1);
  }
  const double weights = choice.sharding == Sharding::kParameters ? sharded : all;
  const double reduced = choice.sharding >= Sharding::kGradients ? sharded : all;

  StageTerms terms;
  TermBytes& base = terms.step;
  if (choice.offload_parameters) {
    terms.host_bytes += state.weight * weights;
  } else {
    at(base, Term::kWeights) = state.weight * weights;
  }
  at(base, Term::kGradients) = state.gradient * reduced;
  at(base, Term::kGradientCopy) = state.gradient_copy * (state.copy_sharded ? updated : all);
  if (choice.offload_optimizer) {
    // With the fp32 gradients that the update on the host reads.
    terms.host_bytes += (state.master + state.momentum + state.variance + 4) * updated;
  } else {
    at(base, Term::kMasterWeights) = state.master * updated;
    at(base, Term::kMomentum) = state.momentum * updated;
    at(base, Term::kVariance) = state.variance * updated;
  }
  if (!cpu) add_constants(base, job, choice);
  terms.saving = base;
  terms.working = base;

  const double block =
      std::max(layers.block_parameters, layers.moe_block_parameters + layers.expert_parameters);
  if (habits.step_bytes > 0 && !choice.offload_optimizer) {
    at(base, Term::kOptimizerWorkspace) = habits.step_bytes * updated;
  }
  if (!cpu) at(terms.saving, Term::kOptimizerWorkspace) = state.weight * block;

  const bool whole = choice.sharding < Sharding::kParameters || ranks.dense == 1;
  if (!whole || choice.offload_parameters) {
    const auto ahead = static_cast<double>(job.parallel.prefetch_layers);
    at(terms.working, Term::kGatheredWeights) =
        state.compute * (layers.largest_layer_parameters + ahead * block);
  }
  if (choice.sharding >= Sharding::kGradients && ranks.dense > 1) {
    at(terms.working, Term::kUnreducedGradients) = state.unreduced * block;
  }
  if (habits.bucket_elements > 0 && choice.sharding >= Sharding::kGradients && ranks.dense > 1) {
    at(terms.working, Term::kBuckets) =
        state.gradient * std::min(static_cast<double>(habits.bucket_elements), all);
  }
  if (habits.gradient_copy_at_step_only) at(terms.working, Term::kGradientCopy) = 0;
  // Gradients that no buffer holds do not exist yet when the deepest backward of the only
  // microbatch begins.
  if (!habits.flat_gradient_buffer && choice.microbatches == 1) {
    at(terms.working, Term::kGradients) = 0;
  }
  return terms;
}

void add_fragmentation(TermBytes& bytes, const JobSpec& job) {
  if (job.cluster.device == DeviceKind::kCpu) return;
  const double allocated =
      total(bytes) - at(bytes, Term::kContext) - at(bytes, Term::kCommunicators);
  at(bytes, Term::kFragmentation) = habits_of(job).fragmentation * allocated;
}

}  // namespace smp
