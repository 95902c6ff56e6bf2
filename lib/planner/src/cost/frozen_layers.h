#pragma once

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/call_bytes.h"

// What fine-tuning changes of a job's layers: frozen weights, and adapters beside them
// (docs/memory.md). A frozen matrix keeps no input, because no gradient of the weights reads it;
// the gradient of its input needs its weights alone. Pure; any thread.
namespace smp::cost {

// The kind of block that a layer is, or that predicts a further token inside it: the one that its
// adapters are listed by.
model::LayerKind block_of(const ModelSpec& model, const model::LayerSpec& layer);

// Whether the blocks' weights are trained, where they are not among the first frozen ones; and the
// projection of the head, which is the embedding's where they are tied.
bool trains_blocks(const JobSpec& job);
bool trains_projection(const JobSpec& job);

// Bytes of an element of a matrix as it is stored while frozen; 0 = as it is computed with.
// bitsandbytes' 4 bits have a scale for each 64 elements: in fp32, or in 8 bits with an fp32 scale
// for each 256 scales (QLoRA, arXiv 2305.14314, section 3: 0.127 bits).
double quantized_bytes(QuantizedKind kind);

// Of one layer's parameters, which are counted as trained, those that are frozen and the adapters.
void freeze_parameters(KindBytes& bytes, const JobSpec& job, const choice::LayoutChoice& choice,
                       const model::LayerSpec& layer, bool is_frozen);

// From a call whose frozen matrices keep no input to that of the job: what adapters keep, weights
// in 16 bits while a quantized matrix runs, and layers that no gradient passes through.
void fine_tune(CallBytes& call, const JobSpec& job, const choice::LayoutChoice& choice,
               const model::LayerSpec& layer, bool is_frozen);

// Bytes of the fullest block's weights while sharding gathers them.
double gathered_block_bytes(const JobSpec& job, const LayerBytes& layers, double compute);

}  // namespace smp::cost
