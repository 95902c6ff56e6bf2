#pragma once

#include "program/builder.h"

// The builders of the kinds of layers, each in its file.
namespace smp::program {

void build_embedding(ProgramBuilder& builder);
void build_block(ProgramBuilder& builder);
void build_expert_block(ProgramBuilder& builder);
void build_cross_block(ProgramBuilder& builder);
void build_head(ProgramBuilder& builder);
void build_operators(ProgramBuilder& builder);

}  // namespace smp::program
