#include "time/step_messages.h"

#include <algorithm>
#include <cmath>

#include "cost/in_engine.h"
#include "cost/layer_parameters.h"
#include "cost/rank_order.h"
#include "cost/state_bytes.h"
#include "links/host_exchange.h"
#include "links/link_model.h"
#include "links/rate.h"
#include "memory/stage_blocks.h"
#include "memory/stage_terms.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/model/router_loads.h"
#include "smp/plan/spec/bucket_size.h"
#include "time/gradient_messages.h"

namespace smp::time {
namespace {

// Bytes that one update moves for each parameter: weight, momentum and variance read and written,
// the gradient read; with 16 bits the weight written once more, and in the passes before it the
// gradient converted, checked for overflow, its norm taken and scaled.
double update_bytes(double element, double gradient, const cost::StateBytes& state) {
  // Of a remainder the 16-bit weight has the other half.
  const double weight = state.master == 2 ? 4 : state.master > 0 ? state.master : state.weight;
  const double moved = 2 * (weight + state.momentum + state.variance);
  if (element > 2) return moved + element + 3 * element;
  return moved + 2 + (gradient + 4) + 4 + 8 + 4;
}

// Of those bytes, the ones that the norm of all gradients reads.
double norm_bytes(double element) { return element > 2 ? element : 4; }

// Calls of one rank for `elements` in buckets; 0: of 25 MB of 16 bits.
double calls_of(double elements, double bucket) {
  constexpr double kUsual = 12.5e6;
  return std::max(1.0, std::ceil(elements / (bucket > 0 ? bucket : kUsual)));
}

// Elements of one reduction of a rank's gradients.
double bucket_elements(const JobSpec& job, const choice::LayoutChoice& choice, double elements) {
  if (!job.parallel.framework.is_engine()) {
    return static_cast<double>(framework::framework_model(job).bucket_elements);
  }
  const double width = gradient_width(job, choice);
  const auto bytes = static_cast<int64_t>(elements * width);
  return static_cast<double>(bucket_bytes_of(job, cost::state_ranks(job, choice).all(), bytes)) /
         width;
}

// Weights of one block that are tensors of their own.
double tensors_of_block(const ModelSpec& model) {
  const double matmuls = is_gated(model.mlp) ? 3 + 2 : 2 + 2;
  const double norms = (model.norm == NormKind::kRmsNorm ? 1 : 2) * (model.shared_norm ? 1 : 2);
  return matmuls * (model.mlp_bias ? 2 : 1) + norms;
}

// The updated weights come to all of the shard group: in buckets to which each rank adds its part,
// or from one owner of tensors after the other.
double updated_weights_s(const JobSpec& job, const choice::LayoutChoice& choice, double elements,
                         double width) {
  const framework::FrameworkModel& framework = framework::framework_model(job);
  if (!framework.owners_broadcast) {
    return gather_s(job, choice, elements, width,
                    calls_of(elements, static_cast<double>(framework.all_gather_bucket_elements)));
  }
  const double blocks =
      static_cast<double>(model::block_count(job.model)) / static_cast<double>(choice.pipeline);
  const double owners = std::min(static_cast<double>(cost::state_ranks(job, choice).shards),
                                 blocks * tensors_of_block(job.model) + 1);
  return owners * broadcast_s(elements * width / owners, cost::shard_placement(choice, job),
                              job.cluster, links::exchange_of(job, mesh::Axis::kShard));
}

bool shards_weights(const JobSpec& job, const choice::LayoutChoice& choice) {
  return choice.sharding == Sharding::kParameters && cost::state_ranks(job, choice).shards > 1;
}

}  // namespace

bool waits_for_sends(const JobSpec& job) { return framework::framework_model(job).waits_for_sends; }

double stage_send_s(const JobSpec& job, const choice::LayoutChoice& choice) {
  if (choice.pipeline == 1) return 0;
  const double tokens =
      static_cast<double>(job.training.sequence_length) * choice.micro_batch / choice.context;
  // Megatron-LM and DeepSpeed send a part from each tensor rank, and gather it on the other side.
  const bool scattered = choice.sequence_parallel || waits_for_sends(job);
  const double whole =
      tokens * static_cast<double>(job.model.hidden_size) * cost::element_bytes(choice.precision);
  const double bytes = scattered ? whole / choice.tensor : whole;
  const double between = cost::boundaries_between_hosts(choice, job) / (choice.pipeline - 1);
  double seconds = (1 - between) * links::send_s(bytes, true, job.cluster) +
                   between * links::send_s(bytes, false, job.cluster);
  if (scattered && !choice.sequence_parallel) {
    seconds += all_gather_s(whole, cost::tensor_placement(choice, job), job.cluster);
  }
  return seconds;
}

StageMessages stage_messages(const JobSpec& job, const choice::LayoutChoice& choice,
                             const cost::LayerBytes& bytes, const cost::StageHolds& holds,
                             const cost::StageParameters& held) {
  const double blocks = holds.blocks;
  StageMessages messages;
  const double width = cost::element_bytes(choice.precision);
  const auto shards = static_cast<double>(cost::state_ranks(job, choice).shards);
  if (shards > 1 && choice.sharding >= Sharding::kGradients && blocks > 0) {
    const double elements = held.dense + held.experts;
    const framework::FrameworkModel& framework = framework::framework_model(job);
    const links::Placement group = cost::shard_placement(choice, job);
    const bool whole = shards_weights(job, choice);
    // What a framework does not reach of the hosts' links.
    const double slow = whole && group.hosts > 1 && framework.gather_share < 1
                            ? framework.gather_share * job.cluster.inter_host_bytes_per_s *
                                  static_cast<double>(job.cluster.processes_per_host)
                            : 0;
    const double gradients = elements * gradient_width(job, choice);
    const double buckets =
        std::ceil(blocks / memory::blocks_of_bucket(job, choice, bytes.largest_block_parameters));
    const double reduce = links::reduce_scatter_s(gradients / buckets, group, job.cluster,
                                                  links::exchange_of(job, mesh::Axis::kShard));
    messages.reduce_backward_s = std::max(buckets * reduce, links::over(gradients, slow));
    // Nothing is computed yet beside the first gather, nothing more beside the last reduction.
    messages.hidden = (slow > 0 ? framework.gathers_hidden : 1) * (1 - 1 / std::max(1.0, buckets));
    if (whole) {
      // Frozen weights are gathered as they are stored, and trained ones with them.
      const double whole_bytes = elements * width + held.frozen_bytes + held.frozen_expert_bytes;
      double gather = std::max(gather_s(job, choice, whole_bytes / width, width, buckets),
                               links::over(whole_bytes, slow));
      if (choice.offload_parameters && job.cluster.device == DeviceKind::kCpu) {
        gather += links::over(2 * whole_bytes / shards, job.cluster.memory_bytes_per_s);
      } else if (choice.offload_parameters) {
        gather =
            std::max(gather, links::over(whole_bytes / shards, job.cluster.host_link_bytes_per_s));
      }
      messages.gather_forward_s = gather;
      messages.gather_backward_s = gather;
    }
    messages.slowdown = slowdown_of(job, mesh::Axis::kShard);
    if (cost::is_of_engine(job)) {
      messages.once_s = (messages.gather_forward_s + messages.reduce_backward_s) / buckets;
    }
  }
  if (choice.offload_activations) {
    double moved = 0;
    for (size_t kind = bytes.kinds->first_block(); kind < bytes.kinds->end_blocks(); ++kind) {
      moved +=
          holds.of_kind[kind] * memory::kept_by_call(bytes.of_kind[kind].call, choice.recompute);
    }
    if (job.cluster.device == DeviceKind::kCpu) {  // read, and written to the other pool
      messages.copies_s = links::over(2 * moved, job.cluster.memory_bytes_per_s);
    } else {
      messages.offload_s = links::over(moved, job.cluster.host_link_bytes_per_s);
    }
  }
  if (choice.pipeline > 1 && waits_for_sends(job)) {
    messages.send_s = 2 * choice.virtual_stages * stage_send_s(job, choice);
  }
  return messages;
}

StepTransfers step_transfers(const JobSpec& job, const choice::LayoutChoice& choice,
                             const cost::StageParameters& held) {
  const double width = cost::element_bytes(choice.precision);
  const double gradient = gradient_width(job, choice);
  const double elements = held.dense + held.experts;
  StepTransfers transfers;

  const double bucket = bucket_elements(job, choice, elements);
  double calls = calls_of(elements, bucket);
  // Buckets of our engine hold whole layers.
  if (cost::is_of_engine(job)) {
    const double layers =
        std::ceil(static_cast<double>(model::block_count(job.model)) / choice.pipeline + 1);
    calls = choice.sharding >= Sharding::kGradients ? layers : std::min(calls, layers);
  }
  ReductionSeconds parts;
  const cost::StateRanks states = cost::state_ranks(job, choice);
  const auto shards = static_cast<double>(states.shards);
  if (states.all() > 1 && choice.sharding < Sharding::kGradients) {
    parts = reduction_s(job, choice, elements, calls);
  } else if (states.replicas > 1) {
    parts.across = all_reduce_s(elements * gradient / shards, cost::replica_placement(choice, job),
                                job.cluster, links::exchange_of(job, mesh::Axis::kReplica));
  }
  transfers.in_shards_s = parts.in_shards;
  transfers.across_s = parts.across;
  transfers.calls = calls;
  transfers.last_s = parts.all() / transfers.calls;
  transfers.shard_slowdown = slowdown_of(job, mesh::Axis::kShard);
  transfers.across_slowdown = slowdown_of(job, sums_over(job, choice));
  // A tied embedding's two copies exchange their gradients. The V of zb_v has one.
  if (model::reuses_embedding(job.model) && choice.pipeline > 1 &&
      choice.schedule != PipelineKind::kZbV) {
    const double table =
        cost::vocabulary_rows(job, choice) * static_cast<double>(job.model.hidden_size);
    const bool apart = cost::boundaries_between_hosts(choice, job) > 0;
    transfers.tied_s =
        links::all_reduce_s(table * gradient, {2, apart ? 2 : 1, apart ? 1 : 2}, job.cluster);
    transfers.tied_reduce_s = elements > 0 ? parts.all() * std::min(1.0, table / elements) : 0;
  }
  if (shards > 1 &&
      (choice.sharding == Sharding::kOptimizerState || choice.sharding == Sharding::kGradients)) {
    transfers.gather_s = updated_weights_s(job, choice, elements, width);
  }

  const double owned = choice.sharding == Sharding::kNone ? elements : elements / shards;
  double update = update_bytes(width, gradient, cost::state_bytes(job, choice));
  const double norm = norm_bytes(width);
  transfers.in_engine = cost::is_of_engine(job);
  if (transfers.in_engine) {
    if (layout::updates_wait(job.training)) {
      transfers.norm_share = norm / update;
    } else {
      update -= norm;
    }
    // The squared norm of each layer and the loss, in fp64: latency is nearly all of it. The loads
    // of routers are another message.
    const auto sums = static_cast<double>(model::block_count(job.model) + 3);
    transfers.agree_s =
        all_reduce_s(sums * static_cast<double>(bytes_of(DType::kF64)),
                     links::placement_of(choice.world(), 1, job.cluster.processes_per_host),
                     job.cluster, links::exchange_of(job, mesh::Axis::kWorld));
    transfers.agreements = model::router_loads(job.model) > 0 ? 2 : 1;
  }
  const double touched = owned * update;
  const bool cpu = job.cluster.device == DeviceKind::kCpu;
  if (choice.offload_optimizer && cpu) {
    // The host's pool is the same memory: gradients and weights are read and written once more.
    const double weights = choice.offload_parameters ? 0 : width > 2 ? 2 * width : width;
    transfers.offload_s =
        links::over(2 * owned * (gradient + weights), job.cluster.memory_bytes_per_s);
    transfers.optimizer_s = links::over(touched, job.cluster.memory_bytes_per_s);
  } else if (choice.offload_optimizer) {
    const double processes = static_cast<double>(job.cluster.processes_per_host);
    transfers.offload_s =
        links::over(owned * (gradient + width), job.cluster.host_link_bytes_per_s);
    transfers.optimizer_s = touched * processes / links::kHostBytesPerS;
  } else {
    transfers.optimizer_s = links::over(touched, job.cluster.memory_bytes_per_s);
  }
  return transfers;
}

namespace {

// What our engine's last backward does not hide. Sums over replicas follow those in the shard
// groups bucket by bucket, on a connection of their own.
double exposed_reduction_s(const StepTransfers& transfers, int64_t pipeline, double backward_s) {
  const double shards = transfers.in_shards_s, across = transfers.across_s;
  const double calls = transfers.calls;
  const double computed = backward_s + transfers.shard_slowdown * std::min(shards, backward_s) +
                          transfers.across_slowdown * std::min(across, backward_s);
  double end = computed;
  if (shards > 0) end = std::max(end + shards / calls, computed / calls + shards);
  if (across > 0) end = std::max(end + across / calls, (computed + shards) / calls + across);
  if (transfers.tied_s > 0) {
    // The last stage sends its part of the gradient while the stages before compute theirs.
    const double half = transfers.tied_s / 2;
    const double late = std::max(0.0, half - static_cast<double>(pipeline - 1) * backward_s);
    end = std::max(end, computed + late + transfers.tied_reduce_s) + half;
  }
  return end - backward_s;
}

}  // namespace

StepMessages step_messages(const JobSpec& job, const choice::LayoutChoice& choice,
                           const StepTransfers& transfers, double forward_s, double backward_s) {
  const framework::FrameworkModel& framework = framework::framework_model(job);
  const double reduce = transfers.in_shards_s + transfers.across_s;
  StepMessages messages;
  const bool plain = choice.pipeline > 1 || choice.sharding == Sharding::kNone;
  if (transfers.in_engine) {
    messages.reduce_s = exposed_reduction_s(transfers, choice.pipeline, backward_s) +
                        transfers.agreements * transfers.agree_s;
  } else if (framework.overlaps_data_reduction && !(plain && framework.plain_reductions_wait)) {
    const double hidden = std::min(reduce - transfers.last_s, backward_s);
    const double slower = transfers.in_shards_s * transfers.shard_slowdown +
                          transfers.across_s * transfers.across_slowdown;
    messages.reduce_s = reduce - hidden + (reduce > 0 ? slower / reduce * hidden : 0);
  } else {
    messages.reduce_s = reduce;
  }
  if (!transfers.in_engine) messages.reduce_s += transfers.tied_s;
  const double hidden =
      framework.overlaps_parameter_gather ? std::min(transfers.gather_s, forward_s) : 0;
  messages.shard_s = transfers.gather_s - hidden + transfers.shard_slowdown * hidden;
  if (transfers.in_engine && transfers.gather_s > forward_s) {
    const double slowed = transfers.shard_slowdown * forward_s;
    messages.shard_s = std::max(slowed, transfers.gather_s - forward_s);
  }
  messages.offload_s = transfers.offload_s;
  messages.optimizer_s = transfers.optimizer_s;
  return messages;
}

StepMessages step_messages(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::StageParameters& held, double forward_s, double backward_s) {
  return step_messages(job, choice, step_transfers(job, choice, held), forward_s, backward_s);
}

}  // namespace smp::time
