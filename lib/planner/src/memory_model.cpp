#include "smp/planner/memory_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "accelerator_layers.h"
#include "activation_walk.h"
#include "memory_terms.h"
#include "smp/plan/check.h"
#include "smp/plan/layout.h"
#include "smp/plan/schedule.h"

namespace smp {
namespace {

constexpr int64_t kTokenBytes = 8;  // int64 ids

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
  ScheduleShape& shape = parameters.shape;
  if (shape.kind == PipelineKind::kInterleaved) {
    shape.microbatches = std::min(shape.microbatches, shape.stages + 2);
  }
  return parameters;
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
    case Precision::kBf16:
    case Precision::kFp8: return kBf16;
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
  const int64_t live = walks_->schedule.live_bound.at(at);  // microbatches in a chunk
  const int64_t chunks = schedule_shape(plan).chunks();
  return (live * blocks.at(at) + chunks - 1) / chunks * boundary_bytes(plan);
}

}  // namespace smp
