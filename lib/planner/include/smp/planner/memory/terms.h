#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "smp/plan/spec/plan.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::memory {

// Named terms of memory, each in one rank's bytes. Formula and source of each: docs/memory.md.
enum class Term {
  kWeights,               // what forward and backward compute with
  kFrozenWeights,         // of fine-tuning: weights that are not trained
  kGradients,             // what is accumulated
  kGradientCopy,          // a second one in fp32 (the 20 B rule)
  kMasterWeights,         // fp32 weights beside 16-bit ones
  kMomentum,              // Adam's
  kVariance,              // Adam's
  kGatheredWeights,       // ZeRO-3: layers whole while they run, and those fetched ahead
  kUnreducedGradients,    // ZeRO-2 and 3: whole until their reduce-scatter
  kBuckets,               // communication buckets
  kActivations,           // kept by the blocks for microbatches in flight
  kCheckpoints,           // inputs of recomputed layers
  kEmbeddingActivations,  // of the embedding
  kLogits,                // logits, loss, and their gradients
  kRecomputed,            // one layer's insides while its backward runs
  kWorkspace,             // temporaries of the running layer
  kOffloadWindow,         // on their way to host memory or back
  kOptimizerWorkspace,    // temporaries of the optimizer step
  kMessages,              // pipeline messages, dispatch to experts
  kBatch,                 // tokens, targets, masks
  kContext,               // CUDA context, libraries, workspaces
  kCommunicators,         // buffers of the collectives' groups
  kFragmentation,         // taken from the device and not handed out
};
inline constexpr int kTerms = 23;

enum class Trust { kMeasured, kDerived, kAssumed };

std::string_view name_of(Term term);  // "fp32 master weights"
std::string_view name_of(Trust trust);
MemoryCategory category_of(Term term);
Trust trust_of(Term term);
std::string_view source_of(Term term);  // where the formula comes from
// With the layout's values, e.g. "4 B x 1,234,567 / 8".
std::string formula_of(Term term, const JobSpec& job, const choice::LayoutChoice& choice,
                       int64_t stage);

}  // namespace smp::memory
