#pragma once

#include <string_view>

#include "importers/huggingface_reader.h"

namespace smp::importers {

inline constexpr std::string_view kGptOssMlp = "geglu";  // whatever hidden_act says

// What the class GptOssForCausalLM computes and other classes do not: sinks, limits of the experts,
// and the router's bias.
void read_gpt_oss(HuggingFaceReader reader);

}  // namespace smp::importers
