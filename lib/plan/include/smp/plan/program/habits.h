#pragma once

#include "smp/plan/framework/framework.h"
#include "smp/plan/program/program.h"
#include "smp/plan/spec/recompute_modules.h"

// How other frameworks run a layer. They compute what the builders say forward, some of it in other
// operations, and derive the backward from that as PyTorch's autograd does: each operation keeps
// what its gradient reads, and no memory is overwritten.
namespace smp::program {

// What selective recompute makes again.
enum class Dropped : uint8_t {
  kNothing,
  kModules,        // those that a job names, by default the core of attention
  kFirstProducts,  // of MLPs, as our engine does
};

struct Habits {
  bool trains = true;                  // the weights; else they are frozen
  bool fused_kernels = true;           // norms, bias + activation, bias + dropout + sum, softmax
  bool fused_gate = true;              // activation and product of a gated MLP in one kernel
  bool flash_attention = true;         // keeps a number of each row, not the scores
  bool repeats_kv_heads = false;       // keys and values are copied to every query head
  bool keeps_expert_outputs = true;    // for the gradient of the router's weights
  bool fused_weight_gradients = true;  // products add to the gradients themselves
  double narrow_bytes = 0;      // of an element that a linear layer keeps of its input; 0 = all
  framework::LogitBytes logit;  // of the loss, and its gradient
  Dropped dropped = Dropped::kNothing;
  RecomputeModules modules;
  // Norms that are modules of their own, and not a part of the product behind them.
  bool norm_before_attention = true, norm_before_mlp = true;
};

// The forward as the builders make it, of every kind of layer: of those too that build() does not
// know. Without a backward.
LayerProgram build_forward(const ModelSpec& model, const model::LayerSpec& layer,
                           const model::LayerCall& call);

// The program of a framework with these habits. It has no section of weights that are put off.
LayerProgram build_as(const ModelSpec& model, const model::LayerSpec& layer,
                      const model::LayerCall& call, const Habits& habits);

// From the program of one number of samples to that of another. Exact where each count is a
// multiple of `from`: for programs made of one sample, whatever they were set to since.
void set_samples(LayerProgram& program, int64_t from, int64_t to);

}  // namespace smp::program
