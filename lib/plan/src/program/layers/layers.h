#pragma once

#include "program/builder.h"

// The builders of the kinds of layers, each in its file.
namespace smp::program {

// The sections of a layer, whose backward gives the gradients of its inputs.
template <typename Kind>
void build_sections(ProgramBuilder& builder, Kind& layer) {
  builder.open(Section::kForward);
  layer.forward();
  if constexpr (requires { layer.rematerialize(); }) {
    builder.open(Section::kRematerialize);
    layer.rematerialize();
  }
  builder.open(Section::kBackward);
  builder.program().input_gradients = layer.backward();
  builder.open(Section::kDeferring);
  builder.program().deferred_input_gradients = layer.backward();
}

void build_embedding(ProgramBuilder& builder);
void build_block(ProgramBuilder& builder);
void build_cross_block(ProgramBuilder& builder);
void build_further_token(ProgramBuilder& builder);
void build_head(ProgramBuilder& builder);
void build_operators(ProgramBuilder& builder);

// The forward alone, of layers that the engine does not run too. Those that predict further tokens
// hand on what they project, and the head projects for the next token: other terms price the rest.
void build_embedding_forward(ProgramBuilder& builder);
void build_block_forward(ProgramBuilder& builder);
void build_cross_block_forward(ProgramBuilder& builder);
void build_mixer_forward(ProgramBuilder& builder);
void build_further_token_forward(ProgramBuilder& builder);
void build_head_forward(ProgramBuilder& builder);
void build_operators_forward(ProgramBuilder& builder);

}  // namespace smp::program
