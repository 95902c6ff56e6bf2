#include "memory/stage_terms.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cost/frozen_layers.h"
#include "cost/in_engine.h"
#include "cost/layer_parameters.h"
#include "cost/rank_order.h"
#include "cost/state_bytes.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/bucket_size.h"
#include "smp/plan/spec/plan.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::memory {
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
// Of a framework's fragmentation: fitted on InternEvo's 16 figures, of which 15 are peaks of the
// step; nine of ten within 11 %.
constexpr double kStateFragmentation = 0.5;

double library_workspace(const JobSpec& job) {
  const bool large = job.cluster.fp8_flops_per_s > 0;
  const double torch = large                        ? kLargeWorkspace
                       : job.training.deterministic ? kDeterministicWorkspace
                                                    : kTorchWorkspace;
  double engines = 0;
  if (framework::framework_model(job).transformer_engine)
    engines = job.model.num_experts > 0 ? 1 + kExpertStreams : 1;
  return 2 * torch + engines * (large ? kLargeWorkspace : kEngineWorkspace);
}

// Elements of a stage's layers, as our engine cuts them into buckets.
class BucketLayers {
 public:
  // `persistent`: whether small tensors stay gathered, outside the buckets. `whole_experts`:
  // whether a rank's experts are on no other one, and in no buffer.
  BucketLayers(const cost::LayerBytes& layers, const cost::StageHolds& holds, bool persistent,
               bool whole_experts)
      : layers_(layers), holds_(holds), persistent_(persistent), whole_experts_(whole_experts) {
    if (holds.embedding) embedding_ = elements_of(layers.embedding());
    if (holds.head) head_ = elements_of(layers.head());
    for (size_t kind = layers.kinds->first_block(); kind < layers.kinds->end_blocks(); ++kind) {
      if (holds.of_kind[kind] > 0) largest_ = std::max(largest_, elements_of(layers.of_kind[kind]));
    }
  }

  double largest_block() const { return largest_; }
  void leave_out_of_head(double elements) { head_ -= elements; }

  // Of the buffers that buckets share while they are whole, as share_buffers() of lib/plan cuts
  // them: those of `packed` blocks each in `rotating` ones, embedding and head in another, or one
  // each.
  double buffers(double packed, double rotating, bool ends_apart) const {
    return largest_blocks(rotating * packed) +
           (ends_apart ? embedding_ + head_ : std::max(embedding_, head_));
  }

 private:
  double elements_of(const cost::KindBytes& each) const {
    return each.all_parameters() - (persistent_ ? each.persistent : 0);
  }

  // Of so many blocks of the stage, the largest ones.
  double largest_blocks(double most) const {
    double sum = 0;
    double bound = std::numeric_limits<double>::infinity();
    for (double left = most; left > 0;) {
      double size = 0, count = 0;  // the largest below those that were taken
      for (size_t kind = layers_.kinds->first_block(); kind < layers_.kinds->head(); ++kind) {
        const cost::KindBytes& of = layers_.of_kind[kind];
        const double each = elements_of(of) - (whole_experts_ ? of.expert_parameters : 0);
        if (holds_.of_kind[kind] == 0 || each >= bound || each < size) continue;
        count = (each == size ? count : 0) + holds_.of_kind[kind];
        size = each;
      }
      if (count == 0) break;
      sum += std::min(left, count) * size;
      left -= count;
      bound = size;
    }
    return sum;
  }

  const cost::LayerBytes& layers_;
  const cost::StageHolds& holds_;
  bool persistent_, whole_experts_;
  double largest_ = 0, embedding_ = 0, head_ = 0;
};

double persistent_elements(const cost::LayerBytes& layers, const cost::StageHolds& holds) {
  double sum = 0;
  for (size_t kind = 0; kind < holds.of_kind.size(); ++kind) {
    sum += holds.of_kind[kind] * layers.of_kind[kind].persistent;
  }
  return sum;
}

// As BatchShare::bytes() of lib/plan.
double read_ahead_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                        const cost::StageHolds& holds) {
  if (model::is_list(job.model)) return 0;
  const bool documents =
      job.training.data_pack != Packing::kConcatenate &&
      (holds.all_blocks() > 0 ||
       (holds.embedding && job.model.position_embedding == PositionKind::kLearned));
  const bool reads_tokens = holds.embedding || (holds.head && job.model.num_mtp_layers > 0);
  const auto tokens = static_cast<double>(reads_tokens ? data::sequences_per_sample(job.model) : 0);
  const double fields = tokens + (holds.head ? 1 : 0) + (documents ? 1 : 0);
  return fields * sizeof(int64_t) * static_cast<double>(choice.microbatches) * choice.micro_batch *
         static_cast<double>(job.training.sequence_length);
}

// What our engine's ranks on CPUs hold instead of what other frameworks do.
void add_engine_buffers(StageTerms& terms, const JobSpec& job, const choice::LayoutChoice& choice,
                        const cost::LayerBytes& layers, const StateRules& rules,
                        const cost::StageHolds& holds) {
  terms.gathered = terms.unreduced = terms.buckets = 0;
  terms.keeps_buffers = true;
  terms.read_ahead = read_ahead_bytes(job, choice, holds);
  const bool tied = model::reuses_embedding(job.model);
  if (tied && job.training.deterministic && holds.embedding && holds.head) {
    const double table =
        cost::vocabulary_rows(job, choice) * static_cast<double>(job.model.hidden_size);
    terms.gradients += rules.state.gradient * table;
  }
  if (cost::state_ranks(job, choice).shards == 1) return;
  const bool shards_weights = choice.sharding == Sharding::kParameters;
  const bool whole_experts = choice.expert > 1 && exchanges_rows(job) && rules.expert_share == 1;
  BucketLayers buckets(layers, holds, shards_weights, whole_experts);
  // A tied table's copy on the last stage is in no bucket and stays whole.
  if (tied && holds.head && !holds.embedding) {
    const double copy = cost::tied_copy(job, choice);
    const double rest = copy * (1 - rules.dense_share);
    buckets.leave_out_of_head(copy);
    if (choice.sharding >= Sharding::kGradients) terms.gradients += rules.state.gradient * rest;
    if (shards_weights) terms.weights += rules.state.weight * rest;
    if (choice.offload_parameters) {
      const double share = rules.state.weight * copy * rules.dense_share;
      terms.host_bytes -= share;
      terms.weights += share;
    }
  }
  const double persistent = shards_weights ? persistent_elements(layers, holds) : 0;
  const bool defers = schedule::defers_weight_gradients(choice.schedule);
  const double packed = blocks_of_bucket(job, choice, buckets.largest_block());
  if (choice.sharding >= Sharding::kGradients) {
    const double rotating = defers ? holds.all_blocks() : 2;
    terms.unreduced =
        rules.state.gradient * (persistent + buckets.buffers(packed, rotating, tied || defers));
  }
  if (shards_weights) {
    double rotating = 1 + static_cast<double>(job.parallel.prefetch_layers);
    const auto most = static_cast<double>(job.parallel.max_live_parameters);
    rotating = std::min(rotating, holds.all_blocks());
    while (most > 0 && rotating > 1 && buckets.buffers(packed, rotating, tied) > most) --rotating;
    terms.gathered = rules.state.weight * (persistent + buckets.buffers(packed, rotating, tied));
  }
}

// Groups of several ranks that a rank is in, each with buffers of its own.
int communicator_count(const choice::LayoutChoice& choice) {
  return (choice.data() * choice.context > 1) + (choice.shard > 1 && choice.replica > 1) +
         (choice.tensor > 1) + (choice.pipeline > 1) + (choice.context > choice.exchange) +
         (choice.exchange > 1) + (choice.expert > 1);
}

}  // namespace

double small_bucket(const JobSpec& job) {
  const auto width = static_cast<double>(job.model.hidden_size);
  return width * width;
}

int64_t blocks_ahead(const JobSpec& job, const cost::LayerBytes& layers) {
  const ParallelSpec& parallel = job.parallel;
  if (parallel.max_live_parameters == 0) return parallel.prefetch_layers;
  const double block = layers.largest_block_parameters;
  const double left =
      static_cast<double>(parallel.max_live_parameters) - layers.largest_layer_parameters;
  return std::clamp<int64_t>(static_cast<int64_t>(left / block), 0, parallel.prefetch_layers);
}

double blocks_reused(const JobSpec& job, const choice::LayoutChoice& choice,
                     const cost::LayerBytes& layers, const cost::StageHolds& holds) {
  const double head = holds.head ? layers.head().parameters : 0;
  const double block = layers.largest_block_parameters;
  // Between a block's forward and its backward each later block is gathered for both, and once
  // more where it computes its forward again.
  const double uses = choice.recompute == Recompute::kFull ? 3 : 2;
  const double further =
      (static_cast<double>(framework::framework_model(job).reuse_elements) - head) / (uses * block);
  const double others = holds.all_blocks() - 1;
  return std::clamp(std::floor(further), 0.0, std::max(0.0, others));
}

double blocks_of_bucket(const JobSpec& job, const choice::LayoutChoice& choice, double elements) {
  if (!cost::is_of_engine(job) || schedule::defers_weight_gradients(choice.schedule) ||
      elements <= 0)
    return 1;
  const double bytes = elements * cost::state_bytes(job, choice).weight;
  const auto of_block = static_cast<int64_t>(bytes);
  const int64_t bucket =
      shard_bucket_bytes_of(job, cost::state_ranks(job, choice).shards, of_block);
  const double enough = std::ceil(static_cast<double>(bucket) / bytes);
  const auto most = static_cast<double>(job.parallel.max_live_parameters);
  if (choice.sharding != Sharding::kParameters || most == 0) return enough;
  return std::min(enough, std::max(1.0, std::floor(most / elements)));
}

double total(const TermBytes& bytes) {
  double sum = 0;
  for (const double term : bytes) sum += term;
  return sum;
}

StateRules::StateRules(const JobSpec& job, const choice::LayoutChoice& choice)
    : framework(framework::framework_model(job)),
      state(cost::state_bytes(job, choice)),
      moving_fragmentation(fragmentation_of(job, PeakPhase::kBackward)),
      state_fragmentation(fragmentation_of(job, PeakPhase::kStep)) {
  if (choice.sharding != Sharding::kNone) {
    const cost::ShardRanks ranks = cost::shard_ranks(job, choice);
    dense_share = 1 / ranks.dense;
    expert_share = 1 / ranks.experts;
  }
  if (job.cluster.device == DeviceKind::kCpu) {
    communicators = cost::group_memory(choice, job);
    tied_group = cost::tied_group_memory(choice, job);
    return;
  }
  if (cost::is_of_engine(job)) groups_on_host = cost::group_memory(choice, job);
  const bool mixed = state.master > 0 && state.gradient_copy == 0;  // copies are made by the step
  if (mixed) step_bytes = framework.step_bytes;
  if (!job.training.fused_optimizer.value_or(framework.fused_optimizer)) {
    step_bytes += framework.step_bytes_unfused;
  }
  // Transformer Engine's narrow weights, and transposed for the backward pass, stay from a step's
  // first microbatch on (pytorch/module/linear.py, quantize_weight).
  if (is_narrow(choice.precision) && framework.transformer_engine &&
      choice.sharding != Sharding::kParameters) {
    copy_bytes = 2 * cost::narrow_bytes(job, choice.precision);
    if (job.training.fp8_parameters) copy_bytes -= state.weight;  // in their stead
  }
  workspace = library_workspace(job);
  if (job.cluster.reserved_bytes == 0) {  // a cluster's reserved_memory stands for both
    context = framework.fixed_bytes;
    communicators = communicator_count(choice) * framework.communicator_bytes;
  }
}

StageTerms stage_terms(const JobSpec& job, const choice::LayoutChoice& choice,
                       const cost::LayerBytes& layers, const StateRules& rules,
                       const cost::StageHolds& holds, double message_bytes) {
  const framework::FrameworkModel& framework = rules.framework;
  const cost::StateBytes& state = rules.state;
  const bool cpu = job.cluster.device == DeviceKind::kCpu;
  const cost::StageParameters parameters = cost::parameters_of(layers, holds);
  const double all = parameters.dense + parameters.experts;
  const double sharded =
      parameters.dense * rules.dense_share + parameters.experts * rules.expert_share;

  // A tied table's copy on the last stage may have no optimizer state.
  double updated = choice.sharding >= Sharding::kOptimizerState ? sharded : all;
  if (holds.head && !holds.embedding && model::reuses_embedding(job.model) &&
      !framework.tied_copy_has_optimizer && cost::trains_projection(job)) {
    updated -= cost::tied_copy(job, choice) * rules.dense_share;
  }
  const double weights = choice.sharding == Sharding::kParameters ? sharded : all;
  const double reduced = choice.sharding >= Sharding::kGradients ? sharded : all;

  StageTerms terms;
  terms.communicators =
      rules.communicators - (holds.embedding || holds.head ? 0 : rules.tied_group);
  terms.constants = rules.context + terms.communicators + rules.workspace;
  terms.host_bytes = rules.groups_on_host + message_bytes;
  (choice.offload_parameters ? terms.host_bytes : terms.weights) += state.weight * weights;
  if (rules.copy_bytes != 0)
    terms.weights += rules.copy_bytes * cost::block_parameters(layers, holds);
  const bool shards_frozen = choice.sharding == Sharding::kParameters;
  (choice.offload_parameters ? terms.host_bytes : terms.frozen_weights) +=
      parameters.frozen_bytes * (shards_frozen ? rules.dense_share : 1) +
      parameters.frozen_expert_bytes * (shards_frozen ? rules.expert_share : 1);
  terms.gradients = state.gradient * reduced;
  terms.gradient_copy = state.gradient_copy * (state.copy_sharded ? updated : all);
  if (choice.offload_optimizer) {
    terms.host_bytes += (state.master + state.momentum + state.variance) * updated;
    // What the update on the host reads: a chunk at a time in our engine, else all fp32 gradients.
    const double weight = choice.offload_parameters ? 0 : state.weight;
    terms.host_bytes +=
        cost::is_of_engine(job)
            ? (state.gradient + weight) * std::min<double>(updated, layout::kHostUpdateElements)
            : 4 * updated;
  } else {
    terms.master = state.master * updated;
    terms.momentum = state.momentum * updated;
    terms.variance = state.variance * updated;
    terms.updating = rules.step_bytes * updated;
  }

  const double block = layers.largest_block_parameters;
  if (!cpu) terms.saving = state.weight * layers.trained_block_parameters;
  const bool whole = choice.sharding < Sharding::kParameters || rules.dense_share == 1;
  if (!whole || choice.offload_parameters) {
    const auto ahead = static_cast<double>(blocks_ahead(job, layers));
    const double ends = (holds.embedding ? layers.embedding().parameters : 0) +
                        (holds.head ? layers.head().parameters : 0);
    const double block_bytes = cost::gathered_block_bytes(job, layers, state.compute);
    if (block_bytes != state.compute * block) {  // quantized: a layer at a time, and those ahead
      terms.gathered = std::max(state.compute * ends, block_bytes) + ahead * block_bytes;
    } else if (framework.gathers_ends_with_model) {
      terms.gathered = state.compute * (ends + (1 + ahead) * block);
    } else if (framework.reuse_elements > 0) {
      terms.gathered =
          state.compute * (layers.largest_layer_parameters +
                           blocks_reused(job, choice, layers, holds) * block + small_bucket(job));
    } else {
      terms.gathered = state.compute * (layers.largest_layer_parameters + ahead * block);
    }
  }
  if (choice.sharding >= Sharding::kGradients && rules.dense_share < 1) {
    double bucket = std::min(static_cast<double>(framework.bucket_elements), all);
    if (framework.small_shard_buckets) {
      // Gradients are moved to the bucket one by one; a reduce-scatter reorders it into a copy.
      const bool scattered = choice.sharding == Sharding::kParameters;
      if (scattered) bucket = std::min(bucket, small_bucket(job));
      terms.unreduced = scattered ? state.unreduced * bucket : 0;
    } else {
      terms.unreduced = state.unreduced * layers.trained_block_parameters;
    }
    terms.buckets = state.gradient * bucket;
  }
  if (cost::runs_in_engine(job)) add_engine_buffers(terms, job, choice, layers, rules, holds);
  // Gradients that no buffer holds do not exist yet when the deepest backward of the only
  // microbatch begins.
  terms.gradients_later = !framework.flat_gradient_buffer && choice.microbatches == 1;
  terms.copy_later = framework.gradient_copy_at_step_only;
  return terms;
}

double StageTerms::total(PeakPhase phase) const {
  const double lasting =
      weights + master + (momentum + variance) + constants + read_ahead + frozen_weights;
  switch (phase) {
    case PeakPhase::kForward:
    case PeakPhase::kBackward:
      return lasting + (gradients_later ? 0 : gradients) + (copy_later ? 0 : gradient_copy) +
             gathered + unreduced + buckets;
    case PeakPhase::kStep:
      return lasting + gradients + gradient_copy + updating +
             (keeps_buffers ? gathered + unreduced : 0);
    case PeakPhase::kCheckpoint: return lasting + gradients + gradient_copy + saving;
  }
  return lasting;
}

TermBytes StageTerms::bytes(PeakPhase phase, const StateRules& rules) const {
  TermBytes bytes{};
  at(bytes, Term::kWeights) = weights;
  at(bytes, Term::kFrozenWeights) = frozen_weights;
  at(bytes, Term::kGradients) = gradients;
  at(bytes, Term::kGradientCopy) = gradient_copy;
  at(bytes, Term::kMasterWeights) = master;
  at(bytes, Term::kMomentum) = momentum;
  at(bytes, Term::kVariance) = variance;
  at(bytes, Term::kContext) = rules.context;
  at(bytes, Term::kCommunicators) = communicators;
  at(bytes, Term::kWorkspace) = rules.workspace;
  at(bytes, Term::kBatch) = read_ahead;
  if (phase == PeakPhase::kStep) at(bytes, Term::kOptimizerWorkspace) = updating;
  if (phase == PeakPhase::kCheckpoint) at(bytes, Term::kOptimizerWorkspace) = saving;
  if (phase == PeakPhase::kStep && keeps_buffers) {
    at(bytes, Term::kGatheredWeights) = gathered;
    at(bytes, Term::kUnreducedGradients) = unreduced;
  }
  if (phase == PeakPhase::kStep || phase == PeakPhase::kCheckpoint) return bytes;
  if (gradients_later) at(bytes, Term::kGradients) = 0;
  if (copy_later) at(bytes, Term::kGradientCopy) = 0;
  at(bytes, Term::kGatheredWeights) = gathered;
  at(bytes, Term::kUnreducedGradients) = unreduced;
  at(bytes, Term::kBuckets) = buckets;
  return bytes;
}

double fragmentation_of(const JobSpec& job, PeakPhase phase) {
  if (job.cluster.device == DeviceKind::kCpu) return 0;
  // The step's blocks are as large as the shards, and states never come and go.
  const bool states = phase == PeakPhase::kStep || phase == PeakPhase::kCheckpoint;
  return framework::framework_model(job).fragmentation * (states ? kStateFragmentation : 1);
}

void add_fragmentation(TermBytes& bytes, double share) {
  const double allocated =
      total(bytes) - at(bytes, Term::kContext) - at(bytes, Term::kCommunicators);
  at(bytes, Term::kFragmentation) = share * allocated;
}

}  // namespace smp::memory
