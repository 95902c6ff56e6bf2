#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/model/layers.h"

// A model in the terms of Hugging Face's transformers: names and shapes of its tensors, and the
// config.json that AutoModelForCausalLM needs. The classes are GPT2LMHeadModel and those of Llama,
// Mistral, Mixtral, Qwen 2 and 3 with and without experts, DeepSeek-V2 and V3, GLM-4.5, Phi and T5.
// A model that none of them computes keeps our own names, and its model_type is smp. Pure; any
// thread.
namespace smp::huggingface {

// Rows of one of our parameters: all, or those of one expert.
struct SourceRows {
  model::ParameterSpec parameter;
  int64_t begin = 0, end = 0;

  int64_t count() const { return end - begin; }
};

// One tensor of the file: rows of our parameters below each other (q, k and v of GPT-2 are one
// tensor there, and each expert of ours has tensors of its own), transposed where Hugging Face
// stores [in, out] (Conv1D).
struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<SourceRows> sources;
  bool transposed = false;
};

std::vector<HuggingFaceTensor> huggingface_tensors(const ModelSpec& model);

// The text of config.json. `dtype` is the type of the stored weights.
std::string huggingface_config(const ModelSpec& model, DType dtype);

// Throws ConfigError, "PATH: ...", with the key, if the text of a config.json does not describe
// this model. A key that is absent has transformers' default.
void check_huggingface_config(const std::string& path, const std::string& text,
                              const ModelSpec& model);

}  // namespace smp::huggingface
