#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/layers.h"

// The model as Hugging Face's transformers name it: names and shapes of GPT2LMHeadModel and of the
// classes of Llama, Mistral, Qwen 2, Qwen 3 and Phi, and the config.json that AutoModelForCausalLM
// needs. A model that none of these computes keeps our own names, and its model_type is smp. Pure.
namespace smp {

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

}  // namespace smp
