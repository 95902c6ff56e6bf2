#pragma once

#include "cost/matmul_seconds.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

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
};

// What the prices of operations read of a job and its layout, once.
struct PricedCall {
  PricedCall(const JobSpec& job_spec, const choice::LayoutChoice& choice);

  const JobSpec& job;
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const TrainingSpec& training;
  const framework::FrameworkModel& framework;
  MatmulRates rates;
  MatmulRates core_rates;   // of attention and the head: never fp8
  MatmulRates wide_rates;   // of fp32: routers
  double t;                 // tensor ranks
  double batch, tokens;     // of a microbatch on a rank: samples, and their tokens
  double element;           // bytes
  double cast_bytes;        // of an operand's element, to fp8 or NVFP4
  double weight_casts;      // of each weight in each microbatch
  double gradient_bytes;    // of an element
  bool fused;               // norms, activations and sums are a kernel each
  bool adds_biases;         // in a pass each, where products do not
  bool draws_dropout;       // as the engine does on CPUs: no masks
  bool sums_beside;         // 16-bit gradients are added to fp32 ones in a pass of its own
  bool trains = true;       // weights have gradients
  double stored_bytes = 0;  // of an element of a frozen matrix in less than 16 bits
};

// Memory-bound kernels: values read and written, in elements.
inline void passes(KernelWork& work, const PricedCall& call, double values, double kernels) {
  work.bytes += call.element * values;
  work.kernels += kernels;
}

}  // namespace smp::cost
