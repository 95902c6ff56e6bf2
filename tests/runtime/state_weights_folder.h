#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "layers_support.h"

// A folder of Hugging Face weights, ours or theirs, read into a model of layers: the worker's
// forward pass on these weights, for comparison with transformers.
namespace smp::test {

ModelSpec model_of_folder(const std::string& dir);  // from config.json

// Whole parameters under our names, converted to `type`.
NamedTensors weights_of_folder(const ModelSpec& model, const std::string& dir, at::ScalarType type);

// Whole tensors of theirs, by name, as our parameters.
NamedTensors parameters_in(const ModelSpec& model, const std::map<std::string, at::Tensor>& theirs);

// One tensor of a safetensors file, as it is stored.
at::Tensor tensor_of_file(const std::string& path, const std::string& name);

// log p(token | those before) of every vocabulary entry at every position: [s, vocabulary]. Each is
// minus the head's loss for that one target. Tokens are [1, s], or [2, 1, s]: an encoder's, then
// its decoder's.
at::Tensor log_probabilities(const ModelOnRank& model, const at::Tensor& tokens,
                             int64_t vocab_size);

}  // namespace smp::test
