#pragma once

#include <string>

#include "program/layers/parts.h"

namespace smp::program {

// The norms of a branch of a block: of what it reads, of what it adds to the residual stream, or of
// both (NormPlacement). The backward computes the result of the first one again.
class BranchNorms {
 public:
  // The norm before the branch, or the only one, is `name`; one behind it is then post_`name`.
  BranchNorms(ProgramBuilder& builder, const Region& region, const std::string& name);

  // What the branch reads: the norm of x, or x itself. `shared_stats`: those of a norm that another
  // branch has computed, or kNoValue.
  ValueId before(ValueId x, const std::string& title, ValueId shared_stats = kNoValue);
  ValueId before_again(ValueId x, const std::string& title) const;
  // residual + the gradient of x, in the memory of dy, which is the gradient of what the branch
  // read. The residual may be kNoValue if there is a norm.
  ValueId before_backward(ValueId dy, ValueId x, ValueId residual, const std::string& title) const;

  // residual + the branch's output, whose bias and dropout are applied here.
  ValueId added(ValueId residual, ValueId output, ValueId bias, const DropoutAttributes& dropout,
                const std::string& title);
  // The gradient of the output with its bias, of that of the sum.
  ValueId output_gradient(ValueId dy, const DropoutAttributes& dropout) const;

  ValueId stats() const { return stats_; }

 private:
  ProgramBuilder& builder_;
  const Region& region_;
  NormParts before_, after_;
  // What the forward has made.
  ValueId stats_ = kNoValue, output_ = kNoValue, output_stats_ = kNoValue;
};

}  // namespace smp::program
