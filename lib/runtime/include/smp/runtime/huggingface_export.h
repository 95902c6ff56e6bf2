#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/layers.h"
#include "smp/plan/plan.h"

// The model in Hugging Face's clothes: names and shapes of GPT2LMHeadModel and of the classes of
// Llama, Mistral, Qwen 2, Qwen 3 and Phi, and the config.json that AutoModelForCausalLM needs. A
// model that none of these computes is saved under our own names, and its model_type is smp. Pure
// but for save_weights.
namespace smp {

class Communicator;
class FlatParameters;

// One tensor of the file, made of whole parameters of ours put below each other (q, k and v of
// GPT-2 are one tensor there), then transposed where Hugging Face stores [in, out] (Conv1D).
struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<ParameterSpec> sources;
  bool transposed = false;
};

std::vector<HuggingFaceTensor> huggingface_tensors(const ModelSpec& model);
std::string huggingface_config(const ModelSpec& model, DType dtype);  // config.json

// Writes <dir>/model.safetensors, in the type that training.save_weights_as says, and
// <dir>/config.json, each atomically, on rank 0. Collective over
// `world`: the tensors travel to rank 0 in blocks (traffic "save.weights") and from there into the
// file, so that a rank holds two blocks of 256 KiB (a tensor's row, if that is longer) at a time
// beside its weights, charged as workspace. Weights beyond the range of fp16 are saved in the type
// in which they were trained; the note that says so, with its line end, is returned on rank 0.
std::string save_weights(const Plan& plan, const FlatParameters& parameters, Communicator& world,
                         const std::string& dir);

}  // namespace smp
