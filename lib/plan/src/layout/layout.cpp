#include "smp/plan/layout/layout.h"

#include <algorithm>
#include <utility>

#include "layout/bucket_cutter.h"
#include "smp/plan/base/check.h"
#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {
namespace {

std::vector<model::ParameterSpec> specs_of(const Plan& plan, const model::LayerSpec& layer) {
  return model::parameters_of(plan.job.model, layer, plan.job.parallel.tensor_parallel);
}

int64_t copies_of(const Plan& plan, const model::ParameterSpec& parameter) {
  if (is_of_shared_experts(plan, parameter)) return 1;
  switch (parameter.split) {
    case model::TensorSplit::kReplicated: return plan.degrees.tensor;
    case model::TensorSplit::kKvHeads: return kv_copies(plan);
    case model::TensorSplit::kRows:
    case model::TensorSplit::kColumns: return 1;
  }
  check_failed(__FILE__, __LINE__, "unknown tensor split");
}

PlacedParameter place(const Plan& plan, const mesh::Coord& coord, int64_t expert_part,
                      const model::ParameterSpec& spec, int64_t layer, int64_t offset) {
  PlacedParameter placed;
  placed.spec = spec;
  placed.box = box_of(plan, spec, coord.tensor, expert_part);
  placed.layer = layer;
  placed.offset = offset;
  placed.copies = copies_of(plan, spec);
  placed.counts = coord.tensor % placed.copies == 0;
  return placed;
}

// A bucket's tensors lie behind each other from its begin; so do those that persist.
std::vector<PlacedParameter> placed_parameters(const Plan& plan, const RankLayout& layout,
                                               int64_t expert_part) {
  std::vector<PlacedParameter> parameters;
  const size_t cut = layout.scheduled - (layout.persistent_bucket >= 0 ? 1 : 0);
  int64_t small_offset = 0, offset = 0, of_experts = 0;
  size_t next = cut;  // the bucket before which we are
  for (const model::LayerSpec& layer : layout.layers) {
    if (next > 0 && layout.buckets[next - 1].first_layer == layer.index) {
      const Bucket& bucket = layout.buckets[--next];
      offset = bucket.begin;
      if (bucket.experts >= 0) {
        of_experts = layout.buckets[static_cast<size_t>(bucket.experts)].begin;
      }
    }
    const std::vector<model::ParameterSpec> tensors = specs_of(plan, layer);
    const std::vector<bool> persists = persistent_of(plan, tensors);
    for (size_t k = 0; k < tensors.size(); ++k) {
      int64_t& at = persists[k]                              ? small_offset
                    : is_of_shared_experts(plan, tensors[k]) ? of_experts
                                                             : offset;
      parameters.push_back(place(plan, layout.coord, expert_part, tensors[k], layer.index, at));
      at += parameters.back().box.size();
    }
  }
  return parameters;
}

}  // namespace

int64_t host_update_elements(const RankLayout& layout) {
  return std::min(layout.optimizer_elements, kHostUpdateElements);
}

RankLayout rank_layout(const Plan& plan, int64_t rank) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  const ModelSpec& model = plan.job.model;
  RankLayout layout;
  layout.rank = rank;
  layout.coord = mesh.coord_of(rank);
  layout.state = state_share(plan, layout.coord);
  layout.expert_state = expert_share(plan, layout.coord);
  std::vector<StageLayers> stages = layers_by_stage(plan);
  StageLayers& stage = stages[static_cast<size_t>(layout.coord.pipeline)];
  static_cast<StageBuckets&>(layout) =
      BucketCutter(plan, layout.coord.tensor).cut(std::move(stage));
  const int64_t expert_part = mesh.expert_part(layout.coord);
  layout.parameters = placed_parameters(plan, layout, expert_part);
  layout.optimizer_elements = layout.part_elements;

  const bool tied_here = model::reuses_embedding(model) && !tied_across_stages(plan);
  layout.tied_gradient_apart =
      tied_here && plan.job.training.deterministic && layout.coord.pipeline == 0;
  const bool is_last = layout.coord.pipeline + 1 == plan.degrees.pipeline;
  if (tied_across_stages(plan) && is_last) {
    const model::LayerSpec embedding = model::layers_of(model).front();
    layout.tied_copy =
        place(plan, layout.coord, expert_part, specs_of(plan, embedding).front(), 0, 0);
    layout.tied_copy->counts = false;
  }
  return layout;
}

}  // namespace smp::layout
