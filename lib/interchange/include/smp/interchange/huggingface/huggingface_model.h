#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/model/layers.h"

// A model in the terms of Hugging Face's transformers: names and shapes of its tensors, and the
// config.json that AutoModelForCausalLM needs. The classes are GPT2LMHeadModel and those of Llama,
// Mistral, Mixtral, Qwen 2 and 3 with and without experts, OLMoE, gpt-oss, DeepSeek-V2 and V3,
// GLM-4.5, Phi and T5. A model that none of them computes keeps our own names, and its model_type
// is smp. Pure; any thread.
namespace smp::huggingface {

// Rows of one of our parameters, all or those of one expert, in a matrix of the file: row `begin`
// is its row `first`, and the next ones follow `step` rows apart.
struct SourceRows {
  model::ParameterSpec parameter;
  int64_t begin = 0, end = 0;
  int64_t first = 0, step = 1;

  int64_t count() const { return end - begin; }
};

// A matrix of rows of our parameters. They lie below each other (q, k and v of GPT-2) or take turns
// (gate and up of gpt-oss). It is transposed where Hugging Face stores [in, out] (Conv1D).
struct HuggingFaceMatrix {
  std::vector<SourceRows> sources;
  bool transposed = false;

  int64_t rows() const;  // before it is transposed, as `cols`
  int64_t cols() const { return sources.front().parameter.cols; }
  int64_t size() const { return rows() * cols(); }
};

// One tensor of the file: a matrix, or those of all experts one behind the other.
struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<HuggingFaceMatrix> matrices;
};

std::vector<HuggingFaceTensor> huggingface_tensors(const ModelSpec& model);

// The text of config.json. `dtype` is the type of the stored weights.
std::string huggingface_config(const ModelSpec& model, DType dtype);

// Throws ConfigError, "PATH: ...", with the key, if the text of a config.json does not describe
// this model. A key that is absent has transformers' default.
void check_huggingface_config(const std::string& path, const std::string& text,
                              const ModelSpec& model);

}  // namespace smp::huggingface
