#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

// The two sides of MFU (model flops utilization): the flops that the model's mathematics need, and
// those that the accelerators could do in the same time. Pure; safe from any thread.
namespace smp::model {

// Flops of `samples` samples of sequence_length tokens, forward and backward, without
// recomputation. A token takes 6 flops for each weight of a matrix. Each block's attention takes 12
// x sequence_length x width, for the whole square (PaLM, appendix B). Only for transformers: a list
// of layers has no closed form.
double model_flops(const ModelSpec& model, int64_t sequence_length, double samples);

// Of a job, whose weights may be frozen. A frozen matrix has no gradient of its own and takes 4
// flops for each weight; in first blocks that no gradient passes through it takes 2. Each weight of
// an adapter takes 6. Dequantisation is not counted.
double model_flops(const JobSpec& job, double samples);

// Peak of one accelerator, for matmuls of the precision; 0 = the cluster does not state it.
double peak_flops_per_s(const ClusterSpec& cluster, Precision precision);

}  // namespace smp::model
