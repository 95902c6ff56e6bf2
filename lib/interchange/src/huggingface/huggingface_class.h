#pragma once

#include "huggingface/huggingface_types.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::huggingface {

// The class of transformers that computes the same function as a model that the engine runs, or
// kNone. The model's weights are saved under that class's names, with that class's config.json.
// Pure; any thread.
HuggingFaceClass class_of(const ModelSpec& model);

}  // namespace smp::huggingface
