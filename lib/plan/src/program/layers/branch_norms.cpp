#include "program/layers/branch_norms.h"

namespace smp::program {

BranchNorms::BranchNorms(ProgramBuilder& builder, const Region& region, const std::string& name)
    : builder_(builder), region_(region) {
  const NormPlacement placement = builder.model().norm_placement;
  if (placement != NormPlacement::kAfter) before_ = norm_parts(builder, name);
  if (placement == NormPlacement::kAfter) after_ = norm_parts(builder, name);
  if (placement == NormPlacement::kBoth) after_ = norm_parts(builder, "post_" + name);
}

ValueId BranchNorms::before(ValueId x, const std::string& title, ValueId shared_stats) {
  if (before_.weight == kNoValue) return x;
  if (shared_stats != kNoValue) {
    stats_ = shared_stats;
    return before_again(x, title);
  }
  const Normed normed = norm(builder_, before_, x, title);
  stats_ = normed.stats;
  return normed.y;
}

ValueId BranchNorms::before_again(ValueId x, const std::string& title) const {
  return before_.weight == kNoValue ? x : norm_again(builder_, before_, x, stats_, title);
}

ValueId BranchNorms::before_backward(ValueId dy, ValueId x, ValueId residual,
                                     const std::string& title) const {
  if (before_.weight == kNoValue) return add_to(builder_, dy, residual);
  return norm_backward(builder_, before_, dy, x, stats_, residual, region_.splits_tokens(), title);
}

ValueId BranchNorms::added(ValueId residual, ValueId output, ValueId bias,
                           const DropoutAttributes& dropout, const std::string& title) {
  if (after_.weight == kNoValue) {
    return add_branch(builder_, residual, output, bias, dropout, title);
  }
  output_ = add_bias(builder_, output, bias);
  const Normed normed =
      norm(builder_, after_, output_, builder_.value(output_).name + " normed");
  output_stats_ = normed.stats;
  return add_branch(builder_, residual, normed.y, kNoValue, dropout, title);
}

ValueId BranchNorms::output_gradient(ValueId dy, const DropoutAttributes& dropout) const {
  ValueId d = dropped(builder_, dy, dropout);
  if (after_.weight == kNoValue) return d;
  if (d == dy) {  // which the residual stream needs as well
    d = builder_.made_like(builder_.value(dy).name + " of the branch", dy);
    builder_.add(OperationKind::kCopy, {dy}, {d});
  }
  return norm_backward(builder_, after_, d, output_, output_stats_, kNoValue,
                       region_.splits_tokens(), builder_.value(output_).name);
}

}  // namespace smp::program
