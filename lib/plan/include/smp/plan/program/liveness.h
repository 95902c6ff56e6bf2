#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/program/program.h"

// How long the memory of a program's values is in use, and how much that is at most.
namespace smp::program {

struct SectionLife {
  // For each operation the values whose memory is free behind it: for the executor to let go.
  std::vector<std::vector<ValueId>> freed;
  std::vector<int64_t> alive_bytes;  // behind each operation, above those at the start
  int64_t peak_bytes = 0;  // most bytes above those at the start, which may be freed meanwhile
  int64_t end_bytes = 0;   // at the end, above those at the start; may be negative
};

// Inputs and fields of the batch are the caller's and live through a section. What the forward has
// saved and the gradients of the outputs are the section's to free.
// `saves`: false for a forward without a backward.
SectionLife life_of(const LayerProgram& program, Section section, bool saves = true);

// What the weights' gradients read: kept from the backward on.
std::vector<ValueId> deferred_values(const LayerProgram& program);

// Bytes of one call on one rank. The input is not included: it is the previous layer's output, or a
// receive buffer. Peaks of bf16 leave out oneDNN's packed copy of a product, which is below 130
// KiB.
struct LayerMemory {
  int64_t output_bytes = 0;        // what goes to the next layer; part of saved_bytes
  int64_t saved_bytes = 0;         // alive from the end of forward to the backward, output included
  int64_t forward_peak_bytes = 0;  // most bytes alive during forward above those at its start
  int64_t input_gradient_bytes = 0;  // what backward hands to the previous layer
  // Most bytes alive during backward above those at its start. At the start the saved bytes and the
  // gradient of the output are alive; backward releases both.
  int64_t backward_peak_bytes = 0;

  // Selective recompute: the part of saved_bytes that is released and computed again before the
  // backward; and the most bytes alive during that.
  int64_t recomputable_bytes = 0;
  int64_t complete_peak_bytes = 0;
  int64_t reread_bytes = 0;  // what it keeps besides, of which they are made again

  // For deferred weight gradients. An embedding and a head defer nothing.
  int64_t deferred_bytes = 0;  // alive from the end of backward to the weights' gradients; the
                               // gradient of the output is among them
  int64_t deferred_saved_bytes = 0;          // of those what the forward has kept
  int64_t deferred_backward_peak_bytes = 0;  // as backward_peak_bytes
  int64_t weight_peak_bytes = 0;  // most bytes alive in the weights' gradients above their start
};
LayerMemory memory_of(const LayerProgram& program);
LayerMemory memory_of(const ModelSpec& model, const model::LayerSpec& layer,
                      const model::LayerCall& call);

}  // namespace smp::program
