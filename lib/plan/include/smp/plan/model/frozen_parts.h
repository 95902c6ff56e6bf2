#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// The parts of a model that training.frozen leaves as they are. Pure; safe from any thread.
namespace smp::model {

struct LayerSpec;

struct FrozenParts {
  bool embedding = false;  // with it a tied projection of the head
  bool head = false;       // the final norm, and a projection that is not tied
  int64_t first_blocks = 0;

  // The vocabulary's matrix at the end of the model.
  bool projection(const ModelSpec& model) const { return model.tied_embeddings ? embedding : head; }
  // No gradient reaches the first blocks.
  bool first_blocks_end_backward() const { return embedding && first_blocks > 0; }
};

// Of a job that was checked. Adapters freeze all other weights whatever the list says.
FrozenParts frozen_parts(const JobSpec& job);

// How many of the model's first blocks are frozen. A plain job is asked a million times a second.
inline int64_t frozen_blocks(const JobSpec& job) {
  return job.training.frozen.empty() ? 0 : frozen_parts(job).first_blocks;
}

// Whether the layer is one of these blocks.
bool is_frozen_block(const JobSpec& job, const LayerSpec& layer);

// Whether some weights of the model are not trained.
inline bool freezes_weights(const JobSpec& job) {
  return job.training.lora.rank > 0 || !job.training.frozen.empty();
}

// What is wrong with the list in a model of `blocks` blocks, "" = nothing. An item is embedding,
// head, layers, layers.0 or layers.0-LAST.
std::string problem_of_frozen(const std::vector<std::string>& frozen, int64_t blocks);

}  // namespace smp::model
