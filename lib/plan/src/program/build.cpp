#include "smp/plan/program/build.h"

#include "program/layers/layers.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/program/fusions.h"

namespace smp::program {

bool has_programs(const ModelSpec& model) {
  const bool is_known = model::is_list(model) || model::is_dense_decoder(model) ||
                        model::is_dense_encoder_decoder(model) || model::is_mixture_decoder(model);
  const bool slides = model.sliding_window == 0 || !model.chunked_windows;
  return is_known && slides && model.vocab_multiple_of <= 1 &&
         model.norm_placement == NormPlacement::kBefore && model.mlp != MlpKind::kSquaredRelu;
}

bool are_alike(const ModelSpec& model, const model::LayerSpec& a, const model::LayerSpec& b) {
  if (a.index == b.index) return true;
  if (a.kind == model::LayerKind::kMtpBlock) return false;  // each reads tokens further on
  return model::have_equal_parameters(model, a, b) &&
         model::has_window(model, a) == model::has_window(model, b) &&
         model::is_in_encoder(model, a) == model::is_in_encoder(model, b) &&
         model::closes_stack(model, a) == model::closes_stack(model, b);
}

LayerProgram build(const ModelSpec& model, const model::LayerSpec& layer,
                   const model::LayerCall& call) {
  ProgramBuilder builder(model, layer, call);
  switch (layer.kind) {
    case model::LayerKind::kEmbedding: build_embedding(builder); break;
    case model::LayerKind::kBlock:
    case model::LayerKind::kMoeBlock: build_block(builder); break;
    case model::LayerKind::kCrossBlock: build_cross_block(builder); break;
    case model::LayerKind::kHead: build_head(builder); break;
    case model::LayerKind::kOperators:
    case model::LayerKind::kLastOperators: build_operators(builder); break;
    case model::LayerKind::kMtpBlock: build_further_token(builder); break;
  }
  LayerProgram program = builder.take();
  for (const FusionRule& rule : fusion_rules()) {
    if (!(call.fusions.*rule.is_on)) continue;
    if (const int places = rule.apply(program)) program.fusions.push_back({rule.name, places});
  }
  find_saved(program);
  return program;
}

}  // namespace smp::program
