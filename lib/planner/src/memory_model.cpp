#include "smp/planner/memory_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "accelerator_layers.h"
#include "activation_walk.h"
#include "smp/plan/check.h"
#include "smp/plan/collective.h"
#include "smp/plan/layout.h"
#include "smp/plan/rank_groups.h"
#include "smp/plan/schedule.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

constexpr const char* kLayoutSource = "rank layout";
constexpr const char* kWalkSource = "schedule walk";
constexpr const char* kZeroSource = "ZeRO, Rajbhandari et al. 2020";
constexpr int64_t kTokenBytes = 8;  // int64 ids

bool on_cpu(const Plan& plan) { return plan.job.cluster.device == DeviceKind::kCpu; }

Sharding sharding_of(const Plan& plan) {
  return plan.job.parallel.sharding.value_or(Sharding::kNone);
}

bool offloads(const Plan& plan) { return plan.job.parallel.offload_activations.value_or(false); }

bool checkpoints(const Plan& plan) {
  return plan.job.parallel.activation_checkpointing.value_or(false);
}

// Bytes of one boundary tensor, [micro batch, sequence, hidden].
int64_t boundary_bytes(const Plan& plan) {
  return *plan.job.training.micro_batch * plan.job.training.sequence_length *
         plan.job.model.hidden_size * bytes_of(compute_dtype(plan));
}

// Tokens of one microbatch on the first stage, targets on the last.
int64_t data_bytes(const Plan& plan, const RankLayout& layout) {
  const int64_t stage = layout.coord.pipeline;
  const int64_t ends = (stage == 0 ? 1 : 0) + (stage + 1 == plan.degrees.pipeline ? 1 : 0);
  return ends * *plan.job.training.micro_batch * plan.job.training.sequence_length * kTokenBytes;
}

// What the first stage receives of a tied embedding's gradient.
int64_t tied_bytes(const Plan& plan, const RankLayout& layout) {
  const bool shared = plan.job.model.tied_embeddings && plan.degrees.pipeline > 1;
  if (!shared || layout.coord.pipeline != 0) return 0;
  return layout.parameters.front().box.size() *
         bytes_per_parameter(*plan.job.training.precision).gradient;
}

// One entry per model layer, as seen by tensor rank `tensor`.
std::vector<LayerMemory> layer_memories(const Plan& plan, int64_t tensor) {
  const LayerCall call{*plan.job.training.micro_batch, plan.job.training.sequence_length,
                       plan.degrees.tensor, tensor, compute_dtype(plan)};
  const ModelSpec& model = plan.job.model;
  std::vector<LayerMemory> memories;
  std::optional<LayerMemory> block;  // all blocks are alike
  for (const LayerSpec& layer : layers_of(model)) {
    if (is_block(layer) && block) {
      memories.push_back(*block);
      continue;
    }
    LayerMemory memory = on_cpu(plan)
                             ? memory_of(model, layer, call)
                             : accelerator_memory_of(model, layer, call, checkpoints(plan));
    // Offloaded outputs lie in host memory; those on their way are a term of their own.
    if (is_block(layer) && offloads(plan)) memory.saved_bytes -= memory.output_bytes;
    memories.push_back(memory);
    if (is_block(layer)) block = memory;
  }
  return memories;
}

// The peak of 1F1B is reached once the pipeline is full, so more microbatches than that need no
// walk.
ScheduleParameters walked_schedule(const Plan& plan) {
  ScheduleParameters parameters = schedule_parameters(plan);
  if (parameters.kind == PipelineKind::kInterleaved) {
    parameters.microbatches = std::min(parameters.microbatches, plan.degrees.pipeline + 2);
  }
  return parameters;
}

// The terms of one rank class, collected in the order in which the report shows them.
class Terms {
 public:
  void add(std::string name, MemoryCategory category, int64_t bytes, std::string formula,
           std::string source) {
    if (bytes != 0) {
      list_.push_back({std::move(name), category, bytes, std::move(formula), std::move(source)});
    }
  }
  int64_t total() const {
    int64_t sum = 0;
    for (const MemoryTerm& term : list_) sum += term.bytes;
    return sum;
  }
  std::vector<MemoryTerm> take() { return std::move(list_); }

 private:
  std::vector<MemoryTerm> list_;
};

std::string product(int64_t bytes, int64_t elements) {
  return fmt::format("{} B x {}", bytes, with_commas(elements));
}

// Weights, gradients and optimizer state of the rank, which live through the whole step.
void add_states(Terms& terms, const Plan& plan, const RankLayout& layout) {
  const BytesPerParameter bytes = bytes_per_parameter(*plan.job.training.precision);
  const Sharding sharding = sharding_of(plan);
  const int64_t z = plan.degrees.shard;
  const auto add = [&](const char* name, MemoryCategory category, int64_t each, bool sharded) {
    const int64_t elements = sharded ? layout.elements / z : layout.elements;
    std::string formula = product(each, layout.elements);
    if (sharded && z > 1) formula += fmt::format(" / {}", z);
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
  add("Adam momentum", MemoryCategory::kOptimizer, bytes.momentum,
      sharding >= Sharding::kOptimizerState);
  add("Adam variance", MemoryCategory::kOptimizer, bytes.variance,
      sharding >= Sharding::kOptimizerState);
  if (layout.tied_copy) {
    const int64_t elements = layout.tied_copy->box.size();
    terms.add("tied embedding copy", MemoryCategory::kWeights, bytes.weight * elements,
              product(bytes.weight, elements), kLayoutSource);
    terms.add("tied embedding gradient", MemoryCategory::kGradients, bytes.gradient * elements,
              product(bytes.gradient, elements), kLayoutSource);
  }
}

int64_t largest_layer(const RankLayout& layout) {
  int64_t largest = 0;
  for (const LayerSpec& layer : layout.layers) {
    int64_t elements = 0;
    for (const PlacedParameter& placed : layout.parameters) {
      if (placed.layer == layer.index) elements += placed.box.size();
    }
    largest = std::max(largest, elements);
  }
  return largest;
}

// What sharded gradients and parameters need besides their shards, while forward and backward run.
void add_working_set(Terms& terms, const Plan& plan, const RankLayout& layout, bool backward) {
  const BytesPerParameter bytes = bytes_per_parameter(*plan.job.training.precision);
  const Sharding sharding = sharding_of(plan);
  if (sharding < Sharding::kGradients || plan.degrees.shard == 1) return;
  const int64_t layer = largest_layer(layout);
  if (sharding == Sharding::kParameters) {
    terms.add("gathered weights of 2 layers", MemoryCategory::kWeights, 2 * bytes.weight * layer,
              "2 x " + product(bytes.weight, layer), "one in use, the next on its way");
  }
  if (backward) {
    terms.add("gradients before their reduction", MemoryCategory::kGradients,
              bytes.gradient * layer, product(bytes.gradient, layer), "the largest layer's");
  }
}

std::string microbatches(int64_t live) {
  return fmt::format("{} microbatch{} live", live, live == 1 ? "" : "es");
}

// "1,024 B x 2 microbatches live"
std::string for_each_live(int64_t bytes, int64_t live) {
  return fmt::format("{} B x {}", with_commas(live == 0 ? bytes : bytes / live),
                     microbatches(live));
}

// "1,024 B x 4 layers x 2 microbatches live"; in the midst of a microbatch, its calls so far.
std::string for_each_call(const Kept& blocks, int64_t live) {
  if (blocks.calls == 0) return "";
  const std::string each = with_commas(blocks.bytes / blocks.calls);
  if (live > 0 && blocks.calls % live == 0) {
    return fmt::format("{} B x {} layers x {}", each, blocks.calls / live, microbatches(live));
  }
  return fmt::format("{} B x {} layer calls, {}", each, blocks.calls, microbatches(live));
}

// "1,024 B x 2 + 4 B"
std::string multiples(int64_t bytes, int64_t each) {
  std::string text = fmt::format("{} B x {}", with_commas(each), bytes / each);
  if (bytes % each != 0) text += fmt::format(" + {} B", with_commas(bytes % each));
  return text;
}

std::string_view words_of(RunningLayer running) {
  switch (running) {
    case RunningLayer::kNone: return "";
    case RunningLayer::kEmbedding: return "the embedding";
    case RunningLayer::kBlock: return "a block";
    case RunningLayer::kHead: return "the head";
  }
  check_failed(__FILE__, __LINE__, "unknown layer");
}

void add_activations(Terms& terms, const Plan& plan, const ActivationBytes& now, bool forward) {
  const int64_t live = now.live_microbatches;
  const int64_t boundary = boundary_bytes(plan);
  const char* table = on_cpu(plan) ? "layer table" : "Korthikanti et al. 2022";
  // A head in its forward makes the logits and the loss; nothing else is inside it.
  const bool makes_loss = forward && now.running == RunningLayer::kHead;
  terms.add("embedding", MemoryCategory::kActivations, now.embedding.bytes,
            for_each_live(now.embedding.bytes, now.embedding.calls), kWalkSource);
  terms.add(checkpoints(plan) ? "checkpoints" : "activations kept", MemoryCategory::kActivations,
            now.blocks.bytes, for_each_call(now.blocks, live), kWalkSource);
  terms.add("logits and loss", MemoryCategory::kActivations,
            now.head.bytes + (makes_loss ? now.transient : 0),
            for_each_live(now.head.bytes + (makes_loss ? now.transient : 0),
                          now.head.calls + (makes_loss ? 1 : 0)),
            table);
  terms.add("gradients of activations", MemoryCategory::kWorkspace, now.gradients,
            multiples(now.gradients, boundary), kWalkSource);
  if (!makes_loss) {
    terms.add(
        "inside the running layer",
        forward ? MemoryCategory::kActivations : MemoryCategory::kWorkspace, now.transient,
        fmt::format("{} B x 1 microbatch in {}", with_commas(now.transient), words_of(now.running)),
        table);
  }
  terms.add("messages received", MemoryCategory::kCommunication, now.messages,
            multiples(now.messages, boundary), kWalkSource);
  terms.add("tokens and targets", MemoryCategory::kData, now.data, for_each_live(now.data, live),
            "int64 ids");
}

// What does not change during the step.
void add_constants(Terms& terms, const Plan& plan, int64_t rank, int64_t blocks) {
  if (offloads(plan)) {
    const int64_t layers = std::min(kLoadingHorizonLayers + 1, blocks);
    terms.add("offload window", MemoryCategory::kActivations, layers * boundary_bytes(plan),
              fmt::format("{} layers x {}", layers, human_bytes(boundary_bytes(plan))),
              "activation_loading_horizon 2, and one on its way");
  }
  if (on_cpu(plan)) {
    int64_t bytes = 0;
    std::string sizes;
    for (const RankGroup& group : rank_groups(plan, rank)) {
      const auto size = static_cast<int64_t>(group.ranks.size());
      bytes += segment_bytes(size);
      sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
    }
    terms.add("shared segments", MemoryCategory::kCommunication, bytes, "groups of " + sizes,
              "segment_bytes(group size)");
  }
}

RankPrediction predict_class(const Plan& plan, const RankLayout& layout,
                             const ActivationPeaks& peaks) {
  const int64_t stage = layout.coord.pipeline;
  const int64_t tensor = layout.coord.tensor;
  const int64_t blocks = std::count_if(layout.layers.begin(), layout.layers.end(), is_block);
  RankPrediction best;
  const auto consider = [&](const char* phase, const ActivationBytes& now, bool working,
                            bool backward) {
    Terms terms;
    add_states(terms, plan, layout);
    if (working) add_working_set(terms, plan, layout, backward);
    add_activations(terms, plan, now, std::string_view(phase) == "forward");
    add_constants(terms, plan, layout.rank, blocks);
    if (terms.total() > best.peak_bytes) {
      best.peak_bytes = terms.total();
      best.peak_phase = phase;
      best.terms = terms.take();
    }
  };
  consider("forward", peaks.forward, true, false);
  consider("backward", peaks.backward, true, true);
  consider("step", peaks.step, false, false);
  best.stage = stage;
  best.tensor = tensor;
  return best;
}

RankLayout layout_of(const Plan& plan, int64_t stage, int64_t tensor) {
  const Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  return rank_layout(plan, mesh.rank_of({.pipeline = stage, .tensor = tensor}));
}

// Stages among which the fullest is: the first two (the first has the embedding, the second
// receives), the first one with a layer less, the last. With a partition of the user's, all.
std::vector<int64_t> stages_worth_a_look(const Plan& plan) {
  const int64_t stages = plan.degrees.pipeline;
  std::set<int64_t> found;
  if (plan.job.parallel.partition.empty()) {
    const int64_t shorter = plan.job.model.num_layers % stages;
    for (const int64_t stage : {int64_t{0}, int64_t{1}, shorter, shorter + 1, stages - 1}) {
      if (stage < stages) found.insert(stage);
    }
  } else {
    for (int64_t stage = 0; stage < stages; ++stage) found.insert(stage);
  }
  return {found.begin(), found.end()};
}

}  // namespace

// What does not depend on the sharding: the schedule, the layer table of each tensor rank, and the
// walk of each class, made when first asked for.
struct MemoryModel::Walks {
  explicit Walks(const Plan& plan) : schedule(make_schedule(walked_schedule(plan))) {}

  const ActivationPeaks& of(const Plan& plan, const RankLayout& layout) {
    const std::pair key{layout.coord.pipeline, layout.coord.tensor};
    const auto known = peaks.find(key);
    if (known != peaks.end()) return known->second;
    auto table = tables.find(key.second);
    if (table == tables.end()) {
      table = tables.emplace(key.second, layer_memories(plan, key.second)).first;
    }
    WalkedStage stage;
    for (const LayerSpec& layer : layout.layers) stage.layers.push_back(layer.index);
    stage.memory = table->second;
    stage.boundary_bytes = boundary_bytes(plan);
    stage.data_bytes = data_bytes(plan, layout);
    stage.tied_bytes = tied_bytes(plan, layout);
    const auto& actions = schedule.actions.at(static_cast<size_t>(key.first));
    return peaks[key] = walk_activations(actions, stage);
  }

  Schedule schedule;
  std::map<int64_t, std::vector<LayerMemory>> tables;  // by tensor rank
  std::map<std::pair<int64_t, int64_t>, ActivationPeaks> peaks;
};

MemoryModel::MemoryModel(const Plan& plan) : walks_(std::make_unique<Walks>(plan)) {}
MemoryModel::~MemoryModel() = default;

RankPrediction MemoryModel::predict(const Plan& plan, int64_t stage, int64_t tensor) {
  const RankLayout layout = layout_of(plan, stage, tensor);
  return predict_class(plan, layout, walks_->of(plan, layout));
}

RankPrediction MemoryModel::fullest_rank(const Plan& plan) {
  RankPrediction fullest;
  for (const int64_t stage : stages_worth_a_look(plan)) {
    RankPrediction rank = predict(plan, stage, 0);
    if (rank.peak_bytes > fullest.peak_bytes) fullest = std::move(rank);
  }
  return fullest;
}

BytesPerParameter bytes_per_parameter(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return kFp32;
    case Precision::kFp64: return kFp64;
    case Precision::kBf16: return kBf16;
    case Precision::kFp16: return kAmpAdam;
  }
  check_failed(__FILE__, __LINE__, "unknown precision");
}

RankPrediction predict_memory(const Plan& plan, int64_t stage, int64_t tensor) {
  return MemoryModel(plan).predict(plan, stage, tensor);
}

std::vector<RankPrediction> predict_memory(const Plan& plan) {
  MemoryModel model(plan);
  std::vector<RankPrediction> classes;
  for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
    for (int64_t tensor = 0; tensor < plan.degrees.tensor; ++tensor) {
      classes.push_back(model.predict(plan, stage, tensor));
    }
  }
  return classes;
}

int64_t allowed_bytes(const ClusterSpec& cluster) {
  return cluster.memory_per_process_bytes - cluster.reserved_bytes;
}

int64_t MemoryModel::offloaded_bytes(const Plan& plan, int64_t stage) const {
  if (!offloads(plan)) return 0;
  const std::vector<int64_t> blocks = blocks_per_stage(
      plan.job.model.num_layers, plan.degrees.pipeline, plan.job.parallel.partition);
  const auto at = static_cast<size_t>(stage);
  return walks_->schedule.live_bound.at(at) * blocks.at(at) * boundary_bytes(plan);
}

}  // namespace smp
