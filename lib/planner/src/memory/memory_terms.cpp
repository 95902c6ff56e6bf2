#include "memory/memory_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cost/in_engine.h"
#include "smp/plan/base/check.h"
#include "smp/plan/data/read_ahead.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/text/units.h"
#include "smp/planner/memory/bytes_per_parameter.h"

namespace smp::memory {
namespace {

// Checkpointed layers whose inputs stay on the accelerator while the rest lie in host memory
// (SMP v2's activation_loading_horizon), and one more that is on its way.
constexpr int64_t kLoadingHorizonLayers = 2;

constexpr const char* kLayoutSource = "rank layout";
constexpr const char* kWalkSource = "schedule walk";
constexpr const char* kZeroSource = "ZeRO, Rajbhandari et al. 2020";

Sharding sharding_of(const Plan& plan) {
  return plan.job.parallel.sharding.value_or(Sharding::kNone);
}

std::string product(int64_t bytes, int64_t elements) {
  return fmt::format("{} B x {}", bytes, text::with_commas(elements));
}

// "4 B x (1,024 + 1,024 + 96)"
std::string sum_of(int64_t bytes, const std::vector<int64_t>& buffers) {
  std::string sizes;
  for (const int64_t size : buffers)
    sizes += (sizes.empty() ? "" : " + ") + text::with_commas(size);
  return fmt::format("{} B x ({})", bytes, sizes);
}

int64_t sum(const std::vector<int64_t>& buffers) {
  return std::accumulate(buffers.begin(), buffers.end(), int64_t{0});
}

std::string microbatches(int64_t live) {
  return fmt::format("{} microbatch{} live", live, live == 1 ? "" : "es");
}

// "1,024 B x 2 microbatches live"
std::string for_each_live(int64_t bytes, int64_t live) {
  return fmt::format("{} B x {}", text::with_commas(live == 0 ? bytes : bytes / live),
                     microbatches(live));
}

// "1,024 B x 4 layers x 2 microbatches live"; in the midst of a microbatch, its calls so far.
std::string for_each_call(const cost::Kept& blocks, int64_t live) {
  if (blocks.calls == 0) return "";
  const std::string each = text::with_commas(blocks.bytes / blocks.calls);
  if (live > 0 && blocks.calls % live == 0) {
    return fmt::format("{} B x {} layers x {}", each, blocks.calls / live, microbatches(live));
  }
  return fmt::format("{} B x {} layer calls, {}", each, blocks.calls, microbatches(live));
}

// "1,024 B x 2 + 4 B"
std::string multiples(int64_t bytes, int64_t each) {
  if (bytes < each) return text::with_commas(bytes) + " B";
  std::string text = fmt::format("{} B x {}", text::with_commas(each), bytes / each);
  if (bytes % each != 0) text += fmt::format(" + {} B", text::with_commas(bytes % each));
  return text;
}

std::string_view words_of(cost::RunningLayer running) {
  switch (running) {
    case cost::RunningLayer::kNone: return "";
    case cost::RunningLayer::kEmbedding: return "the embedding";
    case cost::RunningLayer::kBlock: return "a block";
    case cost::RunningLayer::kHead: return "the head";
  }
  check_failed(__FILE__, __LINE__, "unknown layer");
}

}  // namespace

bool on_cpu(const Plan& plan) { return plan.job.cluster.device == DeviceKind::kCpu; }

bool offloads(const Plan& plan) { return plan.job.parallel.offload_activations.value_or(false); }

int64_t boundary_bytes(const Plan& plan) {
  return *plan.job.training.micro_batch * plan.job.training.sequence_length *
         plan.job.model.hidden_size * bytes_of(compute_dtype(plan));
}

void add_states(Terms& device, Terms& host, const Plan& plan, const layout::RankLayout& layout) {
  const BytesPerParameter bytes = bytes_per_parameter(plan.job);
  const Sharding sharding = sharding_of(plan);
  const int64_t z = layout.state.shards, of_experts = layout.expert_state.shards;
  const bool weights_there = plan.job.parallel.offload_parameters == true;
  const bool optimizer_there = plan.job.parallel.offload_optimizer == true;
  const auto add = [&](const char* name, MemoryCategory category, int64_t each, bool sharded) {
    const bool there = (category == MemoryCategory::kWeights && weights_there) ||
                       (category == MemoryCategory::kOptimizer && optimizer_there);
    Terms& terms = there ? host : device;
    const int64_t elements = sharded ? layout.part_elements : layout.elements;
    std::string formula = product(each, layout.elements);
    if (sharded && z > 1 && of_experts == z) formula += fmt::format(" / {}", z);
    if (sharded && z > 1 && of_experts != z) {
      formula = fmt::format("{} of {}: experts / {}, others / {}", product(each, elements),
                            text::with_commas(layout.elements), of_experts, z);
    }
    terms.add(name, category, each * elements, formula,
              sharded && z > 1 ? kZeroSource : kLayoutSource);
  };
  const bool half = bytes.master > 0;
  add(half ? "16-bit weights" : "weights", MemoryCategory::kWeights, bytes.weight,
      sharding == Sharding::kParameters);
  add(bytes.gradient == 2 ? "16-bit gradients" : "gradients", MemoryCategory::kGradients,
      bytes.gradient, sharding >= Sharding::kGradients);
  // The optimizer's, of its own shard: what unscaling and clipping work on.
  add("fp32 gradient copy", MemoryCategory::kGradients, bytes.gradient_copy,
      sharding >= Sharding::kOptimizerState);
  add("fp32 master weights", MemoryCategory::kOptimizer, bytes.master,
      sharding >= Sharding::kOptimizerState);
  const bool adam = plan.job.training.optimizer.kind == OptimizerKind::kAdamW;
  add(adam ? "Adam momentum" : "SGD momentum", MemoryCategory::kOptimizer, bytes.momentum,
      sharding >= Sharding::kOptimizerState);
  add("Adam variance", MemoryCategory::kOptimizer, bytes.variance,
      sharding >= Sharding::kOptimizerState);
  if (layout.tied_copy) {
    const int64_t elements = layout.tied_copy->box.size();
    device.add("tied embedding copy", MemoryCategory::kWeights, bytes.weight * elements,
               product(bytes.weight, elements), kLayoutSource);
  }
  if (layout.tied_copy || layout.tied_gradient_apart) {
    const layout::PlacedParameter& table =
        layout.tied_copy ? *layout.tied_copy : layout.parameters.front();
    const int64_t elements = table.box.size();
    device.add("tied embedding gradient", MemoryCategory::kGradients, bytes.gradient * elements,
               product(bytes.gradient, elements), kLayoutSource);
  }
  if (!optimizer_there) return;
  const int64_t chunk = layout::host_update_elements(layout);
  const int64_t moved = bytes.gradient + (weights_there ? 0 : bytes.weight);
  host.add("buffers of the update", MemoryCategory::kOptimizer, moved * chunk,
           product(moved, chunk), "chunks of gradients and weights");
}

void add_working_set(Terms& terms, const Plan& plan, const layout::RankLayout& layout) {
  const BytesPerParameter bytes = bytes_per_parameter(plan.job);
  terms.add("gathered weights", MemoryCategory::kWeights, bytes.weight * sum(layout.weight_buffers),
            sum_of(bytes.weight, layout.weight_buffers), "buffers: layers in use and on their way");
  terms.add("gradients before their reduction", MemoryCategory::kGradients,
            bytes.gradient * sum(layout.gradient_buffers),
            sum_of(bytes.gradient, layout.gradient_buffers),
            "buffers: of the running layer and under reduction");
}

void add_activations(Terms& terms, const Plan& plan, const cost::ActivationBytes& now,
                     bool forward) {
  const int64_t live = now.live;
  const int64_t boundary = boundary_bytes(plan);
  const char* table = on_cpu(plan) ? "layer table" : "Korthikanti et al. 2022";
  // A head in its forward makes the logits and the loss; nothing else is inside it.
  const bool makes_loss = forward && now.running == cost::RunningLayer::kHead;
  terms.add("embedding", MemoryCategory::kActivations, now.embedding.bytes,
            for_each_live(now.embedding.bytes, now.embedding.calls), kWalkSource);
  terms.add("activations kept", MemoryCategory::kActivations, now.blocks.bytes,
            for_each_call(now.blocks, live), kWalkSource);
  terms.add("checkpoints", MemoryCategory::kActivations, now.checkpoints.bytes,
            for_each_call(now.checkpoints, live), kWalkSource);
  terms.add("computed again", MemoryCategory::kActivations, now.recomputed.bytes,
            for_each_call(now.recomputed, live), kWalkSource);
  terms.add("fetched from the host", MemoryCategory::kActivations, now.fetched.bytes,
            for_each_call(now.fetched, live), kWalkSource);
  terms.add("kept for deferred gradients", MemoryCategory::kActivations, now.deferred.bytes,
            for_each_call(now.deferred, live), kWalkSource);
  terms.add("made for deferred gradients", MemoryCategory::kWorkspace, now.deferred_made.bytes,
            for_each_call(now.deferred_made, live), kWalkSource);
  terms.add("logits and loss", MemoryCategory::kActivations,
            now.head.bytes + (makes_loss ? now.transient : 0),
            for_each_live(now.head.bytes + (makes_loss ? now.transient : 0),
                          now.head.calls + (makes_loss ? 1 : 0)),
            table);
  terms.add("gradients of activations", MemoryCategory::kWorkspace, now.gradients,
            multiples(now.gradients, boundary), kWalkSource);
  if (!makes_loss) {
    const bool runs_again = now.again > 0 && now.again == now.transient;
    terms.add("inside the running layer",
              forward || runs_again ? MemoryCategory::kActivations : MemoryCategory::kWorkspace,
              now.transient,
              fmt::format("{} B x 1 microbatch in {}", text::with_commas(now.transient),
                          words_of(now.running)),
              table);
  }
  terms.add("messages received", MemoryCategory::kCommunication, now.messages,
            multiples(now.messages, boundary), kWalkSource);
  terms.add("tokens and targets", MemoryCategory::kData, now.data, for_each_live(now.data, live),
            "int64 ids");
}

void add_read_ahead(Terms& terms, const Plan& plan, const layout::RankLayout& layout) {
  if (model::is_list(plan.job.model)) return;
  const data::BatchShare share = data::batch_share(plan, layout);
  if (share.readers == 0) return;
  terms.add(
      "tokens and targets read ahead", MemoryCategory::kData, share.bytes(),
      fmt::format("{} B x {} microbatch{}", text::with_commas(share.bytes() / share.microbatches),
                  share.microbatches, share.microbatches == 1 ? "" : "es"),
      "int64 ids");
}

void add_constants(Terms& terms, const Plan& plan, int64_t rank, int64_t blocks) {
  if (offloads(plan) && !cost::runs_in_engine(plan.job)) {
    const int64_t layers = std::min(kLoadingHorizonLayers + 1, blocks);
    terms.add("offload window", MemoryCategory::kActivations, layers * boundary_bytes(plan),
              fmt::format("{} layers x {}", layers, text::human_bytes(boundary_bytes(plan))),
              "activation_loading_horizon 2, and one on its way");
  }
  if (on_cpu(plan)) {
    int64_t bytes = 0;
    std::string sizes;
    for (const layout::RankGroup& group : layout::rank_groups(plan, rank)) {
      const auto size = static_cast<int64_t>(group.ranks.size());
      bytes += layout::communication_bytes(plan, group);
      sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
    }
    terms.add("shared segments", MemoryCategory::kCommunication, bytes, "groups of " + sizes,
              plan.job.cluster.hosts > 1 ? "segment_bytes(ranks on a host) + channel_bytes(hosts)"
                                         : "segment_bytes(group size)");
  }
}

}  // namespace smp::memory
