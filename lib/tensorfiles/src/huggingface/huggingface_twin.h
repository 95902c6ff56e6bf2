#pragma once

#include "smp/plan/spec/job_spec.h"

namespace smp::huggingface {

// The class of transformers that computes what a model of ours does: its weights are saved under
// that class's names, with that class's config.json. Pure; any thread.
enum class Twin { kGpt2, kLlama, kMistral, kQwen2, kQwen3, kPhi, kT5, kNone };
Twin twin_of(const ModelSpec& model);

struct TwinNames {
  const char* architecture;
  const char* model_type;
};

TwinNames names_of(Twin twin);

}  // namespace smp::huggingface
