#pragma once

#include "smp/plan/spec/job_spec.h"

// A family is a name for attributes of a model's blocks. Pure; safe from any thread.
//   gpt2         learned positions, LayerNorm, GELU, biases everywhere but in the head
//   llama        rotary positions, RMSNorm, SwiGLU, no biases
//   transformer  says nothing: mlp, norm, position_embedding and ffn_hidden_size must be given
namespace smp::model {

// Sets the family and all attributes that it stands for, back to the family's own; sizes stay.
// `tied_embeddings` counts as a size: a family only has a default for it (see job_reader.h).
void set_family(ModelSpec& model, ModelFamily family);

// Whether the blocks equal the family's to the last bias: no experts, no latent attention, no
// attribute that set_family() would change. Dropout and padding of the vocabulary do not count.
bool has_blocks_of(const ModelSpec& model, ModelFamily family);

// Whether the model is embedding, blocks and head as the engine runs them: a decoder of dense
// blocks with learned, rotary or no positions, and plain attention or a latent one without biases,
// with RMSNorm. Norms over all heads are RMS norms. Other attributes of the blocks do not count.
bool is_dense_decoder(const ModelSpec& model);
// The same with experts, behind attention, and not padded to a capacity. Beside a shared expert
// they have no biases.
bool is_mixture_decoder(const ModelSpec& model);

// Whether the model is an encoder and a decoder as the engine runs them: T5's, with any norms,
// biases and MLP.
bool is_dense_encoder_decoder(const ModelSpec& model);

}  // namespace smp::model
