#include "program/habits/rules.h"
#include "program/layers/layers.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/program/fusions.h"

namespace smp::program {

LayerProgram build_forward(const ModelSpec& model, const model::LayerSpec& layer,
                           const model::LayerCall& call) {
  ProgramBuilder builder(model, layer, call);
  if (model::is_hybrid(model) && model::is_transformer_block(layer.kind) &&
      layer.kind != model::LayerKind::kMtpBlock) {
    build_mixer_forward(builder);
    return builder.take();
  }
  switch (layer.kind) {
    case model::LayerKind::kEmbedding: build_embedding_forward(builder); break;
    case model::LayerKind::kBlock:
    case model::LayerKind::kMoeBlock: build_block_forward(builder); break;
    case model::LayerKind::kCrossBlock: build_cross_block_forward(builder); break;
    case model::LayerKind::kMtpBlock: build_further_token_forward(builder); break;
    case model::LayerKind::kHead: build_head_forward(builder); break;
    case model::LayerKind::kOperators:
    case model::LayerKind::kLastOperators: build_operators_forward(builder); break;
  }
  return builder.take();
}

LayerProgram build_as(const ModelSpec& model, const model::LayerSpec& layer,
                      const model::LayerCall& call, const Habits& habits) {
  LayerProgram program = build_forward(model, layer, call);
  if (habits.fused_kernels) {
    for (const FusionRule& rule : fusion_rules()) {
      if (!rule.is_common || !(call.fusions.*rule.is_on)) continue;
      if (const int places = rule.apply(program)) program.fusions.push_back({rule.name, places});
    }
  }
  const ProgramEditor editor{program};
  share_norms(editor);
  separate_heads(editor, habits);
  if (!habits.flash_attention) make_scores(editor);
  make_copies(editor);
  if (!habits.fused_kernels || !habits.fused_gate) separate_gates(editor);
  if (!habits.fused_kernels) widen_norms(editor);
  if (habits.keeps_expert_outputs) weigh_expert_outputs(editor);
  for (Operation& operation : editor.forward()) operation.scratch_bytes = 0;
  set_loss(editor, habits.logit);
  derive_backward(program, habits);
  if (model::is_transformer_block(layer.kind)) rematerialize(program, habits);
  find_saved(program);
  return program;
}

}  // namespace smp::program
