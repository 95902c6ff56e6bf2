#pragma once

#include <array>
#include <string>
#include <vector>

#include "parity/combination.h"
#include "parity/comparison.h"

namespace smp::parity {

// How far a combination is from one rank, and may be. Relative.
struct Difference {
  std::string what;
  double value = 0;
  double allowed = 0;

  bool holds() const { return value <= allowed; }  // not of NaN
};

// Trains combinations beside one rank of the same model in fp64. What one rank came to is kept for
// the next combination that trains the same.
class CompositionRuns {
 public:
  explicit CompositionRuns(std::string data_path) : data_path_(std::move(data_path)) {}

  // Five steps of AdamW: each loss, each gradient norm, and in fp64 each weight. One step of SGD:
  // each gradient, and what clipping left of their norm. And the last three of the five steps once
  // more, by the layout of `resuming` from a checkpoint.
  std::vector<Difference> differences(const Combination& combination, const Combination& resuming,
                                      Precision precision);

 private:
  struct Reference {
    std::array<int, 6> trained{};
    Weights initial;
    Run five;
    Run plain;
  };
  struct Allowed {
    double loss, grad_norm, gradient;
  };
  Plan plan_of(const Combination& combination, const LayoutCase& layout, Precision precision) const;
  const Reference& reference_of(const Combination& combination);
  // In fp64 1e-12. Else what rounding explains, or twice what one rank of the precision is off.
  Allowed allowed_of(const Combination& combination, Precision precision);

  std::string data_path_;
  Reference reference_;
};

}  // namespace smp::parity
