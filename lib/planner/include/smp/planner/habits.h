#pragma once

#include <string_view>

#include "smp/plan/job_spec.h"

namespace smp {

// What a framework does where others do otherwise, as switches: the same layout occupies other
// bytes and takes other time in each. One row per Profile, each switch with its source in
// habits.cpp.
struct Habits {
  bool fp32_gradients_with_bf16 = false;  // main gradients in fp32 beside bf16 weights
  bool fp32_gradients_with_fp16 = false;
  bool gradient_copy_in_fp32 = false;  // the 20 B rule: a 16-bit gradient and an fp32 copy of it
  bool flat_gradient_buffer = false;   // all gradients live in one buffer from start to end
  bool master_weights_with_fp32 = false;
  int64_t bucket_elements = 0;  // of one gradient reduction
  int64_t all_gather_bucket_elements = 0;
  double fixed_bytes = 0;                // context, libraries, workspaces of a process
  double communicator_bytes = 0;         // of each communicator that a rank is in
  double fragmentation = 0;              // reserved / allocated - 1
  bool overlaps_data_reduction = false;  // with the backward pass
  bool overlaps_parameter_gather = false;
  bool fused_kernels = true;  // norm, bias + activation, softmax; else each its own pass
  bool fp32_logits = true;    // logits are copied to fp32 for the loss
};

const Habits& habits_of(Profile profile);

}  // namespace smp
