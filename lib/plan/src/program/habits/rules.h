#pragma once

#include "program/habits/editor.h"
#include "smp/plan/program/habits.h"

// The rules that rewrite a forward to that of a framework. Each is one habit.
namespace smp::program {

// A norm that two branches share is made once, and kept.
void share_norms(const ProgramEditor& editor);
// Norms of heads, rotary positions and copies of key heads are operations ahead of attention.
void separate_heads(const ProgramEditor& editor, const Habits& habits);
// Attention makes and keeps all scores.
void make_scores(const ProgramEditor& editor);
// Results of sums, dropout and positions lie beside what they were made of; dropout has a mask.
void make_copies(const ProgramEditor& editor);
// A gated activation in two kernels keeps what is between them.
void separate_gates(const ProgramEditor& editor);
// An RMSNorm of several kernels keeps its input in fp32 and the rows before their weight.
void widen_norms(const ProgramEditor& editor);
// What experts put out is weighed behind them.
void weigh_expert_outputs(const ProgramEditor& editor);
// The loss keeps so many bytes of a logit, and adds up over tensor ranks one number of each row at
// a time (megatron/core/tensor_parallel/cross_entropy.py).
void set_loss(const ProgramEditor& editor, const framework::LogitBytes& logit);

// Adds the backward of the forward as it stands.
void derive_backward(LayerProgram& program, const Habits& habits);

// Adds the section that makes again what the habit drops.
void rematerialize(LayerProgram& program, const Habits& habits);

}  // namespace smp::program
