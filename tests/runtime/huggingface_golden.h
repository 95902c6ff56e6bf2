#pragma once

#include <array>
#include <string>

// The models of tests/golden/huggingface (scripts/make-golden-huggingface).
namespace smp::test {

inline constexpr std::array kGoldenModels = {"gpt2",
                                             "gpt3-untied-erf",
                                             "transformer-relu",
                                             "llama2",
                                             "llama3",
                                             "llama-biases-linear",
                                             "mistral",
                                             "mistral-window",
                                             "qwen2",
                                             "qwen3",
                                             "mixtral",
                                             "olmoe",
                                             "gpt-oss",
                                             "qwen2-moe",
                                             "qwen3-moe",
                                             "deepseek-v2",
                                             "deepseek-v3",
                                             "deepseek-v3-yarn",
                                             "deepseek-v3-mtp",
                                             "glm4-moe",
                                             "phi",
                                             "t5-tied",
                                             "t5-gated"};

inline std::string golden_folder(const std::string& model) {
  return SMP_SOURCE_DIR "/tests/golden/huggingface/" + model;
}

}  // namespace smp::test
