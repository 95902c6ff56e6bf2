#pragma once

#include <array>
#include <string>

#include "layer_parameters.h"
#include "smp/plan/job_spec.h"
#include "smp/planner/layer_bytes.h"
#include "smp/planner/layout_choice.h"
#include "smp/planner/terms.h"

// The bytes of a rank that do not depend on where in its schedule it is: states, what sharding
// gathers, context. The closed form (memory_estimate.cpp) and the walk (memory_model.cpp) add
// activations to the same ones.
namespace smp {

using TermBytes = std::array<double, kTerms>;

inline double& at(TermBytes& bytes, Term term) { return bytes[static_cast<size_t>(term)]; }
inline double at(const TermBytes& bytes, Term term) { return bytes[static_cast<size_t>(term)]; }
double total(const TermBytes& bytes);

// What a stage holds.
struct StageHolds {
  StageBlocks blocks;
  bool embedding = false;
  bool head = false;
};
StageHolds stage_holds(const ModelSpec& model, const LayoutChoice& choice, int64_t stage);
StageParameters parameters_of(const JobSpec& job, const LayerBytes& layers,
                              const StageHolds& holds);

struct StageTerms {
  TermBytes step{};       // during the optimizer step
  TermBytes saving{};     // while a checkpoint is written
  TermBytes working{};    // during forward and backward
  double host_bytes = 0;  // of what is offloaded for good: optimizer state, weights
};
StageTerms stage_terms(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& layers,
                       const StageHolds& holds);

// How a term comes about, with the layout's values, for what holds `holds`.
std::string formula_of(Term term, const JobSpec& job, const LayoutChoice& choice,
                       const LayerBytes& layers, const StageHolds& holds);

// Adds what the allocator takes from an accelerator and does not hand out.
void add_fragmentation(TermBytes& bytes, const JobSpec& job);

}  // namespace smp
