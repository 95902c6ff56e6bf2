#include <array>
#include <cmath>

#include "published/published_run.h"

namespace smp::published {
namespace {

// A family is the first whose word the name holds. Sources: LLaMA (2302.13971, table 2), Llama 2
// (2307.09288), Llama 3 (2407.21783, table 3), and the config.json of each repository on the
// Hugging Face hub; GPT: GPT-3 (2005.14165, table 2.1), Megatron (2104.04473, table 1).
constexpr std::array kShapes = {
    KnownShape{"llama3.2", 1.24, 16, 2048, 32, 8, 8192, 128256},
    KnownShape{"llama3.2", 3.2, 28, 3072, 24, 8, 8192, 128256},
    KnownShape{"llama3", 8.0, 32, 4096, 32, 8, 14336, 128256},
    KnownShape{"llama3", 70.6, 80, 8192, 64, 8, 28672, 128256},
    KnownShape{"llama3", 405.9, 126, 16384, 128, 8, 53248, 128256},
    KnownShape{"llama2", 6.7, 32, 4096, 32, 32, 11008, 32000},
    KnownShape{"llama2", 13.0, 40, 5120, 40, 40, 13824, 32000},
    KnownShape{"llama2", 69.0, 80, 8192, 64, 8, 28672, 32000},
    KnownShape{"llama", 6.7, 32, 4096, 32, 32, 11008, 32000},
    KnownShape{"llama", 13.0, 40, 5120, 40, 40, 13824, 32000},
    KnownShape{"llama", 32.5, 60, 6656, 52, 52, 17920, 32000},
    KnownShape{"llama", 65.2, 80, 8192, 64, 64, 22016, 32000},
    KnownShape{"mixtral", 46.7, 32, 4096, 32, 8, 14336, 32000},
    KnownShape{"mixtral", 141.0, 56, 6144, 48, 8, 16384, 32768},
    KnownShape{"mistral", 7.2, 32, 4096, 32, 8, 14336, 32000},
    KnownShape{"qwen3", 8.2, 36, 4096, 32, 8, 12288, 151936},
    KnownShape{"qwen3", 30.5, 48, 2048, 32, 4, 6144, 151936},
    KnownShape{"qwen3", 32.8, 64, 5120, 64, 8, 25600, 151936},
    KnownShape{"qwen3", 235.0, 94, 4096, 64, 4, 12288, 151936},
    KnownShape{"qwen", 7.6, 28, 3584, 28, 4, 18944, 152064},
    KnownShape{"qwen", 14.7, 48, 5120, 40, 8, 13824, 152064},
    KnownShape{"qwen", 32.5, 64, 5120, 40, 8, 27648, 152064},
    KnownShape{"qwen", 72.7, 80, 8192, 64, 8, 29568, 152064},
    KnownShape{"gemma", 8.5, 28, 3072, 16, 16, 24576, 256000},
    KnownShape{"internlm", 7.3, 32, 4096, 32, 32, 11008, 103168},
    KnownShape{"internlm", 20.0, 60, 5120, 40, 40, 13824, 103168},
    KnownShape{"deepseek", 671.0, 61, 7168, 128, 128, 18432, 129280},
    KnownShape{"deepseek", 15.7, 27, 2048, 16, 16, 10944, 102400},
    KnownShape{"nemotron", 8.3, 32, 4096, 32, 8, 16384, 256000},
    KnownShape{"nemotron", 15.6, 32, 6144, 48, 8, 24576, 256000},
    KnownShape{"nemotron", 340.0, 96, 18432, 96, 8, 73728, 256000},
    KnownShape{"neox", 20.6, 44, 6144, 64, 64, 24576, 50432},
    KnownShape{"bloom", 7.1, 30, 4096, 32, 32, 16384, 250880},
    KnownShape{"bloom", 176.2, 70, 14336, 112, 112, 57344, 250880},
    KnownShape{"gpt", 0.125, 12, 768, 12, 12, 3072, 50257},
    KnownShape{"gpt", 0.355, 24, 1024, 16, 16, 4096, 50257},
    KnownShape{"gpt", 0.76, 24, 1536, 16, 16, 6144, 50257},
    KnownShape{"gpt", 1.3, 24, 2048, 16, 16, 8192, 50257},
    KnownShape{"gpt", 1.7, 24, 2304, 24, 24, 9216, 50257},
    KnownShape{"gpt", 2.7, 32, 2560, 32, 32, 10240, 50257},
    KnownShape{"gpt", 3.6, 30, 3072, 32, 32, 12288, 50257},
    KnownShape{"gpt", 6.7, 32, 4096, 32, 32, 16384, 50257},
    KnownShape{"gpt", 9.9, 48, 4096, 32, 32, 16384, 50257},
    KnownShape{"gpt", 13.0, 40, 5120, 40, 40, 20480, 50257},
    KnownShape{"gpt", 18.4, 40, 6144, 48, 48, 24576, 50257},
    KnownShape{"gpt", 22.1, 48, 6144, 64, 64, 24576, 50257},
    KnownShape{"gpt", 30.0, 48, 7168, 56, 56, 28672, 50257},
    KnownShape{"gpt", 39.1, 48, 8192, 64, 64, 32768, 50257},
    KnownShape{"gpt", 60.0, 74, 8192, 64, 64, 32768, 50257},
    KnownShape{"gpt", 76.1, 60, 10240, 80, 80, 40960, 50257},
    KnownShape{"gpt", 145.6, 80, 12288, 96, 96, 49152, 50257},
    KnownShape{"gpt", 174.6, 96, 12288, 96, 96, 49152, 50257},
    KnownShape{"gpt", 310.1, 96, 16384, 128, 128, 65536, 50257},
    KnownShape{"gpt", 529.6, 105, 20480, 128, 128, 81920, 50257},
    KnownShape{"gpt", 1008.0, 128, 25600, 160, 160, 102400, 50257},
};

// "Llama-3.1-8B" -> "llama3.1-8b".
std::string without_dash_before_number(const std::string& model) {
  std::string name;
  for (size_t i = 0; i < model.size(); ++i) {
    const bool digit_follows = i + 1 < model.size() && model[i + 1] >= '0' && model[i + 1] <= '9';
    if ((model[i] == '-' || model[i] == '_' || model[i] == ' ') && digit_follows) continue;
    name += model[i];
  }
  return name;
}

}  // namespace

const KnownShape* known_shape(const std::string& model, double billions) {
  const std::string name = without_dash_before_number(model);
  std::string_view family = "gpt";
  for (const KnownShape& shape : kShapes) {
    if (contains(name, shape.family) || contains(model, shape.family)) {
      family = shape.family;
      break;
    }
  }
  const KnownShape* nearest = nullptr;
  for (const KnownShape& shape : kShapes) {
    if (family != shape.family) continue;
    const auto distance = [&](const KnownShape& s) {
      return std::abs(std::log(s.billions / std::max(billions, 1e-3)));
    };
    if (nearest == nullptr || distance(shape) < distance(*nearest)) nearest = &shape;
  }
  return nearest;
}

}  // namespace smp::published
