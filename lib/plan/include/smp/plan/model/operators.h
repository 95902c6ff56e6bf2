#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/plan/spec/operator_spec.h"

// The keys, shapes and parameters of each kind of operator. A kind is one file in
// src/model/operators; what it does is part of its layer's program (program/layers/operator_list).
// See docs/adding-a-layer.md.
//
// A *layer* is the unit that is placed, sharded and recomputed: an operator with a matrix and the
// operators without one that follow it. Operators before the first matrix belong to the first
// layer, and the loss to the last one.
//
// Tensor ranks share the channels of an image, or flat features. A matrix that reads whole channels
// is cut by its outputs. Its output stays cut through operators that work on each channel alone.
// The next matrix is cut by its inputs, and its output is a sum over the ranks, whole on each. An
// operator without a matrix that reads all channels gets them gathered. A loss reads them cut.
namespace smp::model {

inline constexpr int64_t kMostOut = 1 << 20;
inline constexpr int64_t kMostKernel = 1 << 10;

// A key of an operator in a job file: a whole number.
struct OperatorKey {
  std::string_view name;
  int64_t OperatorSpec::*member;
  int64_t min = 1;
  int64_t max = kMostKernel;
  std::optional<int64_t> otherwise = std::nullopt;  // none: it is required
};

struct OperatorRules {
  std::string_view type;  // its name in a job file
  std::vector<OperatorKey> keys;
  // Throws ConfigError with what is wrong.
  SampleShape (*output)(const OperatorSpec& spec, const SampleShape& in);
  // The first is the matrix; names are within the operator. None: nullptr.
  std::vector<ParameterSpec> (*parameters)(const OperatorSpec& spec,
                                           const SampleShape& in) = nullptr;
  bool has_matrix = false;          // it begins a layer
  bool reads_all_channels = false;  // each of its outputs depends on more than its own channel
  bool takes_p = false;             // its key p: a number from 0 to below 1
};
const OperatorRules& rules_of(OperatorKind kind);
const std::vector<OperatorRules>& all_operator_rules();  // in the order of OperatorKind

std::string to_string(const SampleShape& shape);  // "64 x 27 x 27"
int64_t elements_of(const SampleShape& shape);

// Whether the model is a list of operators; else it is a transformer.
inline bool is_list(const ModelSpec& model) { return !model.operators.empty(); }

SampleShape input_of(const ModelSpec& model);
// Of all operators, in order; throws as OperatorRules::output does.
std::vector<SampleShape> output_shapes(const ModelSpec& model);

// One of the ranks of a tensor group.
struct TensorPlace {
  int64_t degree = 1;
  int64_t rank = 0;
};

// How the tensor ranks share a matrix.
enum class MatrixCut { kOutputs, kInputs };

// Channels of a tensor that tensor ranks share, each of `unit` elements of a sample.
struct ChannelCut {
  int64_t channels = 0;  // of all ranks; 0: the tensor is whole
  int64_t unit = 1;

  bool is_cut() const { return channels > 0; }
  // In elements of a sample.
  int64_t begin(const TensorPlace& place) const {
    return unit * mesh::part_begin(channels, place.degree, place.rank);
  }
  int64_t size(const TensorPlace& place) const {
    return unit * mesh::part_size(channels, place.degree, place.rank);
  }
};

// One operator of a layer, with its shapes on one rank.
struct PlacedOperator {
  int64_t index = 0;  // in model.layers
  OperatorSpec spec;
  SampleShape in = {}, out = {};
  ChannelCut in_cut = {}, out_cut = {};
  MatrixCut matrix_cut = MatrixCut::kOutputs;
  bool gathers = false;  // `in_cut` is gathered first: `in` is whole
};
std::vector<PlacedOperator> operators_of(const ModelSpec& model, const LayerSpec& layer,
                                         const TensorPlace& place = {});
// Every matrix of the model, in order, as one rank has it.
std::vector<PlacedOperator> matrices_of(const ModelSpec& model, const TensorPlace& place = {});

// Whether the loss reads logits that are cut.
bool shares_loss(const ModelSpec& model);

// The functions of layers.h for a list of operators.
std::vector<LayerSpec> operator_layers(const ModelSpec& model);
std::vector<ParameterSpec> operator_parameters(const ModelSpec& model, const LayerSpec& layer);

// Sets the sizes of a ModelSpec that follow from the list: num_layers (without the last one, which
// makes the loss), vocab_size (the classes), hidden_size (the widest tensor between two layers).
void set_list_sizes(ModelSpec& model);

// Windows of a pooling or a convolution along one axis: (size + 2 padding - kernel) / stride + 1,
// rounded down. Throws ConfigError if none fits.
int64_t windows_along(const OperatorSpec& spec, int64_t size);
// Samples whose patches a convolution multiplies at once: enough to fill a matrix product.
int64_t samples_at_once(int64_t batch, int64_t windows);

}  // namespace smp::model
