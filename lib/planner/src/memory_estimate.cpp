#include "smp/planner/memory_estimate.h"

#include <algorithm>

#include "engine_bytes.h"
#include "layer_parameters.h"
#include "smp/plan/check.h"
#include "smp/plan/parameter_counts.h"
#include "smp/planner/habits.h"
#include "state_bytes.h"

namespace smp {
namespace {

constexpr double kTokenBytes = 8;  // int64 ids

// PyTorch holds one cuBLAS workspace for each of the two threads that launch matmuls, forward and
// autograd (aten/src/ATen/cuda/CublasHandlePool.cpp: ":4096:2:16:8", 32 MiB from Hopper on;
// deterministic runs set CUBLAS_WORKSPACE_CONFIG=:4096:8), and Transformer Engine one of its own
// (get_cublas_workspace_size_bytes: 4 MiB, 32 MiB from Hopper on). An fp8 unit marks Hopper and
// later.
constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kTorchWorkspace = 8.125 * kMiB;
constexpr double kDeterministicWorkspace = 32 * kMiB;
constexpr double kLargeWorkspace = 32 * kMiB;
constexpr double kEngineWorkspace = 4 * kMiB;
constexpr double kStreams = 4;  // over which it spreads the matmuls of experts, a workspace each

double at(Term term, std::array<double, kTerms>& bytes, double value) {
  bytes[static_cast<size_t>(term)] = value;
  return value;
}

void add(Term term, std::array<double, kTerms>& bytes, double value) {
  bytes[static_cast<size_t>(term)] += value;
}

double sum(const std::array<double, kTerms>& bytes) {
  double total = 0;
  for (const double term : bytes) total += term;
  return total;
}

// Workspaces of the matmul libraries, which PyTorch's allocator hands out.
double library_workspace(const JobSpec& job) {
  const Habits& habits = habits_of(job);
  const bool large = job.cluster.fp8_flops_per_s > 0;
  const double torch = large                        ? kLargeWorkspace
                       : job.training.deterministic ? kDeterministicWorkspace
                                                    : kTorchWorkspace;
  const double engine = large ? kLargeWorkspace : kEngineWorkspace;
  const double engines = (habits.transformer_engine ? 1 : 0) +
                         (habits.transformer_engine && job.model.num_experts > 0 ? kStreams : 0);
  return 2 * torch + engines * engine;
}

// What a stage's blocks keep of one microbatch, by how they are recomputed.
struct Blocks {
  double kept = 0;         // without recomputing
  double checkpoints = 0;  // of recomputed blocks
  double output = 0;
  double again = 0;         // made again in one block's backward
  double workspace = 0;     // of the fullest block's backward
  double last_forward = 0;  // most of the last block's forward above what it keeps
};

Blocks blocks_of(const LayoutChoice& choice, const LayerBytes& layers, const StageBlocks& count) {
  const double blocks = count.dense + count.moe;
  double share = 0;  // of blocks that recompute
  if (choice.recompute != Recompute::kNone && blocks > 0) {
    share = choice.recompute_layers < 0
                ? 1
                : std::min(1.0, static_cast<double>(choice.recompute_layers) / blocks);
  }
  Blocks sum;
  const auto add = [&](const CallBytes& call, double calls) {
    if (calls <= 0) return;
    const double recomputing = calls * share;
    sum.kept += (calls - recomputing) * call.saved;
    double again = 0;
    if (choice.recompute == Recompute::kSelective) {
      sum.kept += recomputing * call.selective;
      if (share > 0) again = call.saved - call.selective;
    } else if (choice.recompute == Recompute::kFull) {
      sum.checkpoints += recomputing * call.checkpoint;
      if (share > 0) again = call.recomputed;
    }
    sum.output = call.output;
    if (again + call.workspace > sum.again + sum.workspace) {
      sum.again = again;
      sum.workspace = call.workspace;
    }
    sum.last_forward = std::max(sum.last_forward, call.forward - call.saved);
  };
  add(layers.block, count.dense);
  add(layers.moe_block, count.moe);
  return sum;
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kStep: return "step";
    case Phase::kCheckpoint: return "checkpoint";
  }
  check_failed(__FILE__, __LINE__, "unknown phase");
}

MemoryEstimate estimate_memory(const JobSpec& job, const LayoutChoice& choice,
                               const LayerBytes& layers, int64_t stage) {
  const ModelSpec& model = job.model;
  const Habits& habits = habits_of(job);
  const bool cpu = job.cluster.device == DeviceKind::kCpu;
  const StageParameters parameters = stage_parameters(job, choice, layers, stage);
  const StateBytes state = state_bytes(job, choice.precision);
  const ShardRanks ranks = shard_ranks(job, choice);
  const bool first = stage == 0;
  const bool head = holds_head(choice, stage);

  // States. The copy of a tied table on the last stage may have no optimizer state.
  const double all = parameters.dense + parameters.experts;
  const double sharded = parameters.dense / ranks.dense + parameters.experts / ranks.experts;
  double without_state = 0;
  if (head && model.tied_embeddings && choice.pipeline > 1 && !habits.tied_copy_has_optimizer) {
    without_state = vocabulary_rows(job, choice) * static_cast<double>(model.hidden_size);
  }
  const double updated =
      (choice.sharding >= Sharding::kOptimizerState ? sharded : all) -
      without_state / (choice.sharding >= Sharding::kOptimizerState ? ranks.dense : 1);
  const double weights =
      choice.sharding == Sharding::kParameters && !choice.offload_parameters ? sharded : all;
  const double reduced = choice.sharding >= Sharding::kGradients ? sharded : all;

  MemoryEstimate estimate;
  std::array<double, kTerms> base{};
  if (!choice.offload_parameters) at(Term::kWeights, base, state.weight * weights);
  at(Term::kGradients, base, state.gradient * reduced);
  at(Term::kGradientCopy, base, state.gradient_copy * (state.copy_sharded ? updated : all));
  const double optimizer = (state.master + state.momentum + state.variance) * updated;
  if (choice.offload_optimizer) {
    estimate.host_bytes += optimizer + 4 * updated;  // and the gradients it works on
  } else {
    at(Term::kMasterWeights, base, state.master * updated);
    at(Term::kMomentum, base, state.momentum * updated);
    at(Term::kVariance, base, state.variance * updated);
  }
  if (choice.offload_parameters) estimate.host_bytes += state.weight * sharded;
  if (!cpu) {
    at(Term::kContext, base, habits.fixed_bytes);
    at(Term::kWorkspace, base, library_workspace(job));
    const int groups = (choice.data() * choice.context > 1) + (choice.tensor > 1) +
                       (choice.pipeline > 1) + (choice.context > 1) + (choice.expert > 1);
    at(Term::kCommunicators, base, groups * habits.communicator_bytes);
  }

  // What forward and backward hold.
  std::array<double, kTerms> working = base;
  const double full_layer = layers.block_parameters > layers.moe_block_parameters
                                ? layers.block_parameters
                                : layers.moe_block_parameters + layers.expert_parameters;
  if (choice.sharding == Sharding::kParameters && ranks.dense > 1) {
    const double ahead = static_cast<double>(job.parallel.prefetch_layers);
    at(Term::kGatheredWeights, working,
       state.compute * (layers.largest_layer_parameters + ahead * full_layer));
  }
  if (choice.sharding >= Sharding::kGradients && ranks.dense > 1) {
    at(Term::kUnreducedGradients, working,
       (cpu ? state.gradient : state.compute + 4) * layers.largest_layer_parameters);
  }

  StageBlocks count = stage_blocks(model, choice, stage);
  const double n = count.dense + count.moe;
  const double further = head ? static_cast<double>(model.num_mtp_layers) : 0;
  (has_experts(model, model.num_layers - 1) ? count.moe : count.dense) += further;
  const Blocks blocks = blocks_of(choice, layers, count);
  const double live = microbatches_in_flight(choice, stage);
  const bool waits = choice.schedule == PipelineKind::kSimple;
  const double live_heads = head ? (waits ? live : 1) * (1 + further) : 0;
  const double boundary = layers.embedding.output;
  double kept = blocks.kept;
  if (!head && habits.frees_sent_outputs) kept -= blocks.output;

  double on_host = 0;
  double checkpoints = blocks.checkpoints;
  if (choice.offload_activations) {
    const double each = n > 0 ? (checkpoints + kept) / n : 0;
    const double window =
        std::min(n, static_cast<double>(job.parallel.activation_loading_horizon + 1)) * each;
    on_host = live * (checkpoints + kept);
    checkpoints = kept = 0;
    at(Term::kOffloadWindow, working, window);
  }
  estimate.host_bytes += on_host;
  at(Term::kActivations, working, live * kept);
  at(Term::kCheckpoints, working, live * checkpoints);
  if (first) at(Term::kEmbeddingActivations, working, live * layers.embedding.saved);
  at(Term::kBatch, working,
     ((first ? live : 0) + live_heads) * kTokenBytes * choice.micro_batch *
         static_cast<double>(job.training.sequence_length) / choice.context);
  double messages = 0;
  if (!first) messages += live * boundary;
  if (choice.pipeline > 1 && !head) messages += boundary;  // the gradient received
  at(Term::kMessages, working, messages);

  estimate.peak_bytes = -1;
  const auto consider = [&](Phase phase, std::array<double, kTerms>& now) {
    if (!cpu) {
      double allocated = sum(now) - now[static_cast<size_t>(Term::kContext)] -
                         now[static_cast<size_t>(Term::kCommunicators)];
      at(Term::kFragmentation, now, habits.fragmentation * allocated);
    }
    const double total = sum(now);
    if (total > estimate.peak_bytes) {
      estimate.peak_bytes = total;
      estimate.bytes = now;
      estimate.phase = phase;
    }
  };
  // Gradients that no buffer holds do not exist yet when the deepest backward of the only
  // microbatch begins.
  if (!habits.flat_gradient_buffer && choice.microbatches == 1) at(Term::kGradients, working, 0);

  std::array<double, kTerms> now = working;
  if (head) {
    at(Term::kLogits, now, (live_heads - 1) * layers.head.saved + layers.head.forward);
    consider(Phase::kForward, now);
    now = working;
    at(Term::kLogits, now, live_heads * layers.head.saved);
    add(Term::kWorkspace, now, layers.head.workspace);
    consider(Phase::kBackward, now);
    now = working;
    at(Term::kLogits, now, (live_heads - 1) * layers.head.saved);
  } else {
    add(Term::kWorkspace, now, blocks.last_forward);
    consider(Phase::kForward, now);
    now = working;
  }
  at(Term::kRecomputed, now, blocks.again);
  add(Term::kWorkspace, now, blocks.workspace + (head ? layers.head.input_gradient : 0));
  consider(Phase::kBackward, now);

  std::array<double, kTerms> step = base;
  if (habits.fp32_weights) at(Term::kOptimizerWorkspace, step, 4 * updated);
  if (!cpu) consider(Phase::kCheckpoint, base);
  consider(Phase::kStep, step);

  estimate.stage = static_cast<int32_t>(stage);
  const auto& bytes = estimate.bytes;
  estimate.reserved_bytes = estimate.peak_bytes - bytes[static_cast<size_t>(Term::kContext)] -
                            bytes[static_cast<size_t>(Term::kCommunicators)];
  estimate.allocated_bytes =
      estimate.reserved_bytes - bytes[static_cast<size_t>(Term::kFragmentation)];
  return estimate;
}

MemoryEstimate estimate_memory(const JobSpec& job, const LayoutChoice& choice,
                               const LayerBytes& layers) {
  MemoryEstimate fullest = estimate_memory(job, choice, layers, 0);
  const auto consider = [&](int64_t stage) {
    MemoryEstimate other = estimate_memory(job, choice, layers, stage);
    if (other.peak_bytes > fullest.peak_bytes) fullest = other;
  };
  if (choice.pipeline > 2) consider(1);
  if (choice.pipeline > 1) consider(choice.pipeline - 1);
  return fullest;
}

}  // namespace smp
