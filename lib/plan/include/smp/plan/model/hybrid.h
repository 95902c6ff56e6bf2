#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

// A hybrid has a pattern of layers (Nemotron-H, arXiv:2504.03624): each is one mixer with its norm
// and its residual sum, where a plain model's layer is attention and an MLP. Pure; any thread.
namespace smp::model {

// The letters of model.layer_pattern, as Megatron-LM's --hybrid-override-pattern has them.
inline constexpr char kMambaLetter = 'M';
inline constexpr char kAttentionLetter = '*';
inline constexpr char kMlpLetter = '-';
inline constexpr char kExpertsLetter = 'E';

inline bool is_hybrid(const ModelSpec& model) { return !model.layer_pattern.empty(); }

// Of layer 0 <= layer < num_layers of a hybrid. A pattern that is shorter than the model repeats.
char layer_letter(const ModelSpec& model, int64_t layer);

// How many of the layers [begin, end) of a hybrid have that letter.
int64_t letters_between(const ModelSpec& model, char letter, int64_t begin, int64_t end);
inline int64_t letters(const ModelSpec& model, char letter) {
  return letters_between(model, letter, 0, model.num_layers);
}

// Columns of a Mamba-2 layer: of its inner stream; of what its convolution reads (the stream, B and
// C); of its first projection (the gate, those, and a time step for each head).
inline int64_t mamba_inner(const ModelSpec& model) {
  return model.mamba_heads * model.mamba_head_dim;
}
inline int64_t mamba_convolved(const ModelSpec& model) {
  return mamba_inner(model) + 2 * model.mamba_groups * model.mamba_state_dim;
}
inline int64_t mamba_projected(const ModelSpec& model) {
  return mamba_inner(model) + mamba_convolved(model) + model.mamba_heads;
}

// Flops of a forward scan of one token in one layer, in the blocked form (arXiv:2405.21060,
// section 6). Each group has scores of a chunk's tokens. Each head has their product with the
// stream, the chunk's state, and what comes of the state before it.
double mamba_scan_flops(const ModelSpec& model);

}  // namespace smp::model
