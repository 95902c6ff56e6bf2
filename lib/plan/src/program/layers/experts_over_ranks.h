#pragma once

#include <string>

#include "program/layers/parts.h"

namespace smp::program {

// A router and its experts where experts lie on ranks of their own (expert parallelism): each rank
// routes its own tokens, an all-to-all takes them to the ranks of their experts and another one
// brings back what those put out. The forward alone.
class ExpertsOverRanks {
 public:
  explicit ExpertsOverRanks(ProgramBuilder& builder);

  // As ExpertsBranch::forward.
  ValueId forward(ValueId x, ValueId residual, ValueId stats);

 private:
  // A matrix of the experts of this rank, [count * rows, cols]; its first parameter and its last.
  ValueId expert_matrix(const std::string& first, const std::string& last, int64_t rows,
                        int64_t cols);
  ValueId expert_product(ValueId x, ValueId weight, const std::string& name, int64_t cols);
  ValueId exchanged(ValueId x, int64_t rows, const std::string& name);
  ValueId routed(ValueId y);
  ValueId shared(ValueId y);

  ProgramBuilder& builder_;
  const Region region_;
  const bool gated_;
  const NormParts norm_;
  ExpertAttributes experts_;
  int64_t width_ = 0;                // of an expert on this rank
  int64_t sent_ = 0, received_ = 0;  // rows
};

}  // namespace smp::program
