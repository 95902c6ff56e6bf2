#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "parity/layouts.h"

// One way to train, as a value of each factor. The first value of each is the plain one: one rank,
// nothing recomputed, a GPT-2 that reads one long text in fp64.
namespace smp::parity {

enum Factor {
  kPipeline,
  kTensor,
  kShard,
  kReplica,
  kContext,
  kExperts,
  kSharding,
  kSchedule,
  kRecompute,
  kOffload,
  kMicrobatches,
  kActive,
  kFamily,
  kTied,
  kDropout,
  kSequence,
  kSmall,
  kPrecision,
  kDocuments,
  kMasked,
  kClipping,
  kFactors
};
using Choice = std::array<int, kFactors>;  // an index of each factor's values

struct FactorNames {
  std::string name;
  std::vector<std::string> values;
};
const std::array<FactorNames, kFactors>& factor_names();

struct Combination {
  explicit Combination(const Choice& values);

  ModelSpec model() const;
  LayoutCase one_rank() const;  // trains the same
  // Of another layout, but the same model, data and precision.
  Combination with_layout_of(const Combination& other) const;
  // Of token data that write_data() wrote.
  Plan plan_of(const LayoutCase& one, Precision precision, const std::string& data_path) const;
  // What a run's numbers depend on, beside the precision.
  std::array<int, 6> trained() const;

  Choice choice;
  LayoutCase layout;
  Precision precision;
};

// Tokens with a mask beside them; returns their path.
std::string write_data(const std::string& folder);

// Whether a plan can be made at all. What a plan refuses is for check().
bool is_sensible(const Choice& choice);
// The factors that this reads.
inline constexpr std::array<Factor, 12> kSensed{kPipeline, kTensor,  kShard,    kReplica,
                                                kContext,  kExperts, kSharding, kSchedule,
                                                kSequence, kSmall,   kFamily,   kMicrobatches};

}  // namespace smp::parity
