#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

// What MFU (model flops utilization) is a quotient of: the flops that the model's mathematics need,
// and those that the accelerators could do in the same time. Pure; safe from any thread.
namespace smp::model {

// Of `samples` samples of sequence_length tokens, forward and backward, without recomputation: 6
// flops a token for each weight of a matrix, and 12 x sequence_length x width for each block's
// attention, the whole square of it (PaLM, appendix B). Of transformers: the flops of a list of
// layers are not counted in closed form.
double model_flops(const ModelSpec& model, int64_t sequence_length, double samples);

// Of one accelerator, for matmuls of the precision; 0 = the cluster does not state it.
double peak_flops_per_s(const ClusterSpec& cluster, Precision precision);

}  // namespace smp::model
