#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/model/layers.h"

// The tensors that flow between layers, and the fields of the batch that layers read, as shapes.
// Messages, receive buffers and traffic use these functions: no other place knows a layer's
// outputs.
namespace smp {
struct JobSpec;
}

namespace smp::model {

// One tensor of one microbatch on one rank.
struct TensorSpec {
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;

  int64_t elements() const;
  int64_t bytes() const { return elements() * bytes_of(dtype); }
  bool has_gradient() const { return dtype != DType::kI64; }
  bool operator==(const TensorSpec&) const = default;
};

// The outputs of a layer, in order; none for a layer that makes the loss.
std::vector<TensorSpec> outputs_of(const ModelSpec& model, const LayerSpec& layer,
                                   const LayerCall& call);

// How many of a layer's inputs, the last ones, other layers use as well. They stay on the device
// when the rest is offloaded. In an encoder_decoder: the embedded tokens of the decoder (y), tables
// of relative positions, and the encoder output (enc), to which the decoder attends. Of layers that
// predict further tokens: what the head projects, n0 for the next token, n1 for the one behind it.
//
//   embedding        -> x, encoder's table, y, decoder's table
//   encoder block    x | table, y, table -> x, and the others; the last one keeps its table
//   decoder block 0  x | y, table        -> y, enc, table; enc is the encoder's norm of x
//   decoder block    y | enc, table      -> y, and the others; the last one y alone
//   further token 1  x                   -> n1, n0
//   further token 2  | n1, n0            -> n2, n1, n0
//   head             n2 | n1, n0         -> losses; of one further token: n1, n0
int64_t shared_inputs_of(const ModelSpec& model, const LayerSpec& layer);

// A field of the batch, as a layer that reads it gets it, behind the outputs of the layer before.
TensorSpec field_of(const ModelSpec& model, BatchField field, const LayerCall& call);
// Which of a sample's tokens those are.
TokenSlices slices_of(BatchField field, const LayerCall& call);
// What is read of the data for it, whole samples, and whether the field is then taken of that: a
// rank's slices, or what is further on. Further tokens are taken of the tokens.
BatchField source_of(BatchField field);
TensorSpec read_field_of(const ModelSpec& model, BatchField field, const LayerCall& call);
bool is_taken(const ModelSpec& model, BatchField field, const LayerCall& call);
// Whether the field has rows for tokens further on.
bool looks_ahead(const ModelSpec& model, BatchField field);

// Whether a layer must know where documents begin in a sample (training.data.pack). Its attention
// stays within documents, or its learned positions restart at each.
bool reads_document_starts(const JobSpec& job, const LayerSpec& layer);

int64_t bytes_of(const std::vector<TensorSpec>& tensors);
// Those that have a gradient: integers have none.
int64_t gradient_bytes_of(const std::vector<TensorSpec>& tensors);

}  // namespace smp::model
