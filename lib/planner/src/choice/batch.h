#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

namespace smp::choice {

struct BatchShape {
  int64_t micro_batch = 1;
  int64_t microbatches = 1;
};

// "2 x 1 x 256 = 512 samples x 4,096 tokens = 2,097,152"
std::string batch_equation(const BatchShape& batch, int64_t data, int64_t sequence_length);

// A microbatch of this many tokens fills the matmuls; a larger one only costs memory.
inline constexpr int64_t kFullMicrobatchTokens = 16384;
// Microbatches per stage that keep the bubble of 1F1B near a fifth: (p-1) / (4p + p - 1).
inline constexpr int64_t kMicrobatchesPerStage = 4;

// The batches that the pins and the token limit leave open to d data-parallel ranks and p stages,
// largest microbatch first. Empty: `problem` has the equation that failed.
struct BatchChoices {
  std::vector<BatchShape> shapes;
  std::string problem;
};
BatchChoices batch_choices(const JobSpec& job, int64_t pipeline, int64_t data);

// The same for a search that compares all of them: microbatches up to kMostMicrobatchTokens of each
// context rank, and where the batch is open every doubling of the microbatches that the token limit
// allows (with stages: of p). `context`: ranks that share a sequence.
BatchChoices every_batch(const JobSpec& job, int64_t pipeline, int64_t data, int64_t context);
inline constexpr int64_t kMostMicrobatchTokens = 131072;
inline constexpr int64_t kMostMicrobatches = 4096;  // where the batch is open

}  // namespace smp::choice
