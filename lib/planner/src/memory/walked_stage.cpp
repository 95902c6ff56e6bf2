#include "memory/walked_stage.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "cost/in_engine.h"
#include "memory/memory_terms.h"
#include "memory/stage_blocks.h"
#include "smp/plan/base/check.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/program/build.h"
#include "smp/plan/text/units.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/memory/bytes_per_parameter.h"

namespace smp::memory {
namespace {

constexpr int64_t kTokenBytes = 8;  // int64 ids

cost::WalkedLayer walked_layer(const cost::CallBytes& call, cost::RunningLayer kind,
                               Recompute recompute) {
  cost::WalkedLayer layer;
  layer.kind = kind;
  double saved = call.saved;
  double again = 0;
  if (recompute == Recompute::kSelective) {
    saved = call.selective;
    again = call.saved - call.selective;
  } else if (recompute == Recompute::kFull) {
    saved = call.checkpoint;
    again = call.recomputed;
    layer.recomputed = true;
  }
  layer.again_bytes = text::whole_bytes(again);
  layer.memory = {
      .output_bytes = kind == cost::RunningLayer::kHead ? 0 : text::whole_bytes(call.output),
      .saved_bytes = text::whole_bytes(saved),
      .forward_peak_bytes = text::whole_bytes(call.forward),
      .input_gradient_bytes = text::whole_bytes(call.input_gradient),
      .backward_peak_bytes = text::whole_bytes(again + call.workspace)};
  return layer;
}

cost::RunningLayer running_kind(model::LayerKind kind) {
  if (kind == model::LayerKind::kEmbedding) return cost::RunningLayer::kEmbedding;
  return model::makes_loss(kind) ? cost::RunningLayer::kHead : cost::RunningLayer::kBlock;
}

// Of what is read for a field that is then taken of it.
int64_t taken_bytes(const ModelSpec& model, model::BatchField field, const model::LayerCall& call) {
  if (!model::is_taken(model, field, call)) return 0;
  return model::read_field_of(model, field, call).bytes();
}

// Marks where a stage's chunks begin and end, and leaves as they are the layers of a stage beyond
// the first `recompute_layers`.
void place_layers(cost::WalkedStage& stage, const SizedPlan& sized, const WalkedRank& rank) {
  const Plan& plan = sized.plan;
  const choice::LayoutChoice& choice = sized.choice;
  const int64_t tokens = choice.micro_batch * plan.job.training.sequence_length / choice.context;
  const model::LayerCall call = layout::layer_call(plan, rank.tensor);
  const schedule::ScheduleShape shape = layout::schedule_shape(plan);
  const int64_t at = rank.stage;
  const auto is_here = [&](int64_t position) {
    return position >= 0 && position < shape.stages * shape.chunks() &&
           schedule::place_of_chunk(shape, position).stage == at;
  };
  auto layer = rank.held.layers.begin();
  int64_t block = 0;
  int64_t chunk = 0;
  for (const int64_t count : rank.held.chunk_layers) {
    const int64_t position = schedule::position_of_chunk(shape, {at, chunk++});
    stage.chunks.emplace_back(layer->index, layer->index + count - 1);
    cost::WalkedLayer& first = stage.layers.at(static_cast<size_t>(layer->index));
    if (stage.in_engine && std::any_of(layer, layer + count, [&](const model::LayerSpec& one) {
          return model::reads_document_starts(plan.job, one);
        })) {
      first.data_bytes +=
          model::field_of(plan.job.model, model::BatchField::kDocumentStarts, call).bytes();
      first.whole_bytes += taken_bytes(plan.job.model, model::BatchField::kDocumentStarts, call);
    }
    // By field, and by what is read of the data for it: several layers may read one.
    std::array<bool, model::kBatchFields> has_field{}, has_source{};
    for (int64_t i = 0; i < count; ++i, ++layer) {
      cost::WalkedLayer& walked = stage.layers.at(static_cast<size_t>(layer->index));
      walked.opens_chunk = i == 0;
      walked.closes_chunk = i + 1 == count;
      walked.takes_over = walked.opens_chunk && is_here(position - 1);
      walked.hands_over = walked.closes_chunk && is_here(position + 1);
      if (layer->reads) {
        walked.field_bytes = stage.in_engine
                                 ? model::field_of(plan.job.model, *layer->reads, call).bytes()
                                 : tokens * kTokenBytes;
        if (!std::exchange(has_field[static_cast<size_t>(*layer->reads)], true)) {
          first.data_bytes += walked.field_bytes;
        }
        const auto source = static_cast<size_t>(model::source_of(*layer->reads));
        if (!std::exchange(has_source[source], true) && stage.in_engine) {
          first.whole_bytes += taken_bytes(plan.job.model, *layer->reads, call);
        }
      }
      if (walked.kind == cost::RunningLayer::kBlock && !stage.in_engine &&
          choice.recompute_layers >= 0 && ++block > choice.recompute_layers) {
        const cost::WalkedLayer marks = walked;
        walked =
            walked_layer(sized.bytes.of(*layer).call, cost::RunningLayer::kBlock, Recompute::kNone);
        walked.opens_chunk = marks.opens_chunk;
        walked.closes_chunk = marks.closes_chunk;
        walked.takes_over = marks.takes_over;
        walked.hands_over = marks.hands_over;
        walked.data_bytes = marks.data_bytes;
        walked.whole_bytes = marks.whole_bytes;
        walked.handed_bytes = marks.handed_bytes;
        walked.handed_gradient_bytes = marks.handed_gradient_bytes;
      }
      // Where no gradient passes through frozen blocks, a chunk's last one keeps its output alone.
      const bool ends_frozen = model::is_frozen_block(plan.job, *layer) &&
                               (i + 1 == count || !model::is_frozen_block(plan.job, *(layer + 1)));
      if (ends_frozen && is_forward_alone(sized.bytes.of(*layer).call) &&
          !choice.offload_activations) {
        walked.memory.saved_bytes = walked.memory.output_bytes;
      }
    }
  }
}

// What the engine's schedule says of each layer.
void mark_recomputed(cost::WalkedStage& stage, const schedule::ScheduleParameters& parameters) {
  for (size_t i = 0; i < stage.layers.size(); ++i) {
    cost::WalkedLayer& layer = stage.layers[i];
    const int64_t checkpoint = schedule::checkpoint_of(parameters, static_cast<int64_t>(i));
    layer.selective = checkpoint >= 0 && parameters.selective;
    layer.recomputed = checkpoint >= 0 && !parameters.selective;
    layer.keeps_input = layer.recomputed && checkpoint == static_cast<int64_t>(i);
    layer.feeds_recompute =
        layer.recomputed && !layer.closes_chunk &&
        schedule::checkpoint_of(parameters, static_cast<int64_t>(i) + 1) == checkpoint;
  }
}

}  // namespace

int64_t tied_bytes(const Plan& plan, int64_t stage, int64_t tensor) {
  if (!layout::tied_across_stages(plan) || stage != 0) return 0;
  const ModelSpec& model = plan.job.model;
  const model::ParameterSpec table = model::parameters_of(model, model::layers_of(model).front(),
                                                          plan.job.parallel.tensor_parallel)
                                         .front();
  return model::tensor_box(model, table, plan.degrees.tensor, tensor).size() *
         bytes_per_parameter(plan.job).gradient;
}

std::vector<cost::WalkedLayer> walked_layers(const SizedPlan& sized, int64_t tensor) {
  const Plan& plan = sized.plan;
  const ModelSpec& model = plan.job.model;
  const choice::LayoutChoice& choice = sized.choice;
  const model::LayerCall call = layout::layer_call(plan, tensor);
  const bool exact = cost::runs_in_engine(plan.job);
  std::vector<cost::WalkedLayer> layers;
  std::vector<model::TensorSpec> taken;  // what the layer before hands on
  program::OfAlikeLayers<program::LayerMemory> memories(model);
  for (const model::LayerSpec& spec : model::layers_of(model)) {
    const cost::RunningLayer kind = running_kind(spec.kind);
    const bool block = kind == cost::RunningLayer::kBlock;
    const Recompute recompute = block ? choice.recompute : Recompute::kNone;
    cost::WalkedLayer layer = walked_layer(sized.bytes.of(spec).call, kind, recompute);
    // Elsewhere than in the engine, messages are as large as what the embedding hands on.
    layer.handed_bytes = layers.empty() ? layer.memory.output_bytes : layers.front().handed_bytes;
    layer.handed_gradient_bytes = layer.handed_bytes;
    if (exact) {
      const std::vector<model::TensorSpec> outputs = model::outputs_of(model, spec, call);
      layer.handed_bytes = bytes_of(outputs);
      layer.handed_gradient_bytes = model::gradient_bytes_of(outputs);
      if (model.stack == Stack::kEncoderDecoder && !outputs.empty()) {
        layer.passed_gradient_bytes = layer.handed_gradient_bytes - outputs.front().bytes();
      }
      for (int64_t i = 0; i < model::shared_inputs_of(model, spec); ++i) {
        layer.shared_input_bytes += taken[taken.size() - 1 - static_cast<size_t>(i)].bytes();
      }
      taken = outputs;
      layer.memory = memories.of(spec, [&] { return program::memory_of(model, spec, call); });
      layer.again_bytes = 0;
    } else if (block && choice.offload_activations) {
      layer.memory.saved_bytes = 0;  // on the host; those on their way are a term of their own
    }
    layers.push_back(layer);
  }
  return layers;
}

cost::WalkedStage walked_stage(const SizedPlan& sized, const WalkedRank& rank,
                               std::vector<cost::WalkedLayer> layers,
                               const schedule::ScheduleParameters& parameters) {
  const Plan& plan = sized.plan;
  cost::WalkedStage stage;
  stage.layers = std::move(layers);
  stage.tied_bytes = tied_bytes(plan, rank.stage, rank.tensor);
  stage.defers_weight_gradients = schedule::defers_weight_gradients(*plan.job.parallel.pipeline);
  stage.in_engine = cost::runs_in_engine(plan.job);
  stage.frees_sent_outputs =
      !on_cpu(plan) && framework::framework_model(plan.job).frees_sent_outputs;
  place_layers(stage, sized, rank);
  if (stage.in_engine) mark_recomputed(stage, parameters);
  return stage;
}

}  // namespace smp::memory
