#pragma once

#include "cost/matmul_seconds.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

// The kernels of a layer call on one rank: matmuls in seconds, memory-bound kernels in bytes, draws
// of dropout, and how many are launched. What they cost together, messages included, is
// layer_seconds.cpp's. Pure.
namespace smp::cost {

// What the kernels of one direction take.
struct KernelWork {
  double matmul_s = 0;
  double bytes = 0;  // of memory-bound kernels
  double draws = 0;  // elements whose dropout is drawn again instead of kept
  double kernels = 0;
};

struct LayerWork {
  KernelWork forward;
  KernelWork backward;
  KernelWork attention_core;  // part of forward
  KernelWork selective;       // part of forward: what selective recomputation repeats
};

// Everything that the formulas below read, once.
struct PricedCall {
  PricedCall(const JobSpec& job_spec, const choice::LayoutChoice& choice);

  const JobSpec& job;
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const TrainingSpec& training;
  const framework::FrameworkModel& framework;
  MatmulRates rates;
  MatmulRates core_rates;  // of attention: never fp8
  double t, c, batch, sequence, tokens, wide_tokens, h, element, heads, kv_heads;
  double mlp_ranks;     // that share an MLP's width
  double cast_bytes;    // of an operand's element, to fp8 or NVFP4
  double weight_casts;  // of each weight in each microbatch
  double key_dim, value_dim, vocabulary, gradient_bytes;
  bool latent, fused, flash;
  bool draws_dropout;       // as the engine does on CPUs: no masks
  bool sums_beside;         // 16-bit gradients are added to fp32 ones in a pass of its own
  bool trains = true;       // weights have gradients
  double stored_bytes = 0;  // of an element of a frozen matrix in less than 16 bits
};

// x [tokens, in] -> [tokens, out], its two gradients, and the sum of the weight's into the buffer.
void linear(LayerWork& work, const PricedCall& call, double tokens, double in, double out,
            bool bias, double copies = 1);

// Memory-bound kernels: values read and written, in elements.
void passes(KernelWork& work, const PricedCall& call, double values, double kernels);

// A norm of `tokens` rows of `width`.
void norm(LayerWork& work, const PricedCall& call, double tokens, double width);

// Dropout of [rows, cols] where it is a kernel of its own.
void dropout(LayerWork& work, const PricedCall& call, double rows, double cols);

// Dropout and the sum with the residual stream.
void residual(LayerWork& work, const PricedCall& call);

// Seconds of `draws` elements.
double draw_s(const PricedCall& call, double draws);

// Projections, positions, the core, the output's projection.
void attention(LayerWork& work, const PricedCall& call);

// Of latent attention the projections from the compressed queries, keys and values, and positions.
void latent_up(LayerWork& work, const PricedCall& call);

// One MLP of `width` on `tokens` tokens; `copies` of them side by side (experts).
void mlp(LayerWork& work, const PricedCall& call, double tokens, double width, double copies = 1);

// Of a block of `mixers` mixers, each with its norms and its residual sum: 2 of attention and an
// MLP. With the operators that the other counts leave out.
void norms_and_residuals(LayerWork& work, const PricedCall& call, double further_kernels = 0,
                         int mixers = 2);

}  // namespace smp::cost
