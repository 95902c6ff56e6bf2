#pragma once

#include <string_view>

#include "program/builder.h"

// The tensor-parallel region of a layer: it begins ahead of a column-parallel product and ends
// behind a row-parallel one (Shoeybi et al. 2019). Norms, residual sums and dropout are outside it.
// They work on all n tokens or, with split sequences (sequence parallelism, Korthikanti et al.
// 2022), on the rank's n/t of the b * s tokens, from rank * n/t on.
//
//                      on the way in        inside, of each rank     on the way out
//   plain              [n, h] as it is      its part of the sum      sum over the ranks: [n, h]
//   split sequences    [n/t, h] gathered    its part of the sum      sum, scattered: [n/t, h]
//
// If the matrices are not split, each rank computes the whole sum and nothing is added; with split
// sequences a rank takes its tokens.
//
// The backward is symmetric: the gradient of the output is gathered on the way in, and the gradient
// of the input is summed on the way out.
namespace smp::program {

inline constexpr std::string_view kForwardLabel = "tensor.forward",
                                  kBackwardLabel = "tensor.backward";

class Region {
 public:
  // `is_shared`: whether the ranks share the matrices.
  Region(ProgramBuilder& builder, bool is_shared)
      : builder_(builder), is_shared_(is_shared && builder.call().tensor_degree > 1) {}

  // A sum that may be in flight.
  struct Sum {
    ValueId addends = kNoValue;
    ValueId result = kNoValue;
    bool in_flight = false;
  };

  // x of this rank's tokens -> x of all tokens; x itself if it has all.
  ValueId gathered(ValueId x, std::string_view label) const;
  // y of all tokens, an addend -> the sum over the ranks, for this rank's tokens.
  ValueId summed(ValueId y, std::string_view label) const { return sum(y, label, true).result; }
  Sum start_sum(ValueId y, std::string_view label) const { return sum(y, label, false); }
  ValueId wait(const Sum& sum) const;
  // In place over the ranks that share the matrices. x itself if they do not.
  ValueId all_reduced(ValueId x, std::string_view label) const;

  bool is_shared() const { return is_shared_; }
  bool splits_tokens() const { return parts() > 1; }
  // The tokens of a microbatch divided by this rank's tokens outside the region.
  int64_t parts() const {
    return builder_.call().sequence_parallel ? builder_.call().tensor_degree : 1;
  }
  // The first token that this rank has outside the region.
  int64_t first_token() const {
    return parts() == 1 ? 0 : builder_.call().tensor_rank * builder_.call().own_tokens();
  }
  // The number of tensor ranks that share the matrices, and this one's place among them.
  int64_t degree() const { return is_shared_ ? builder_.call().tensor_degree : 1; }
  int64_t rank() const { return is_shared_ ? builder_.call().tensor_rank : 0; }

  // [tokens, cols], of all tokens and of this rank's.
  Shape all_tokens(Dim cols) const { return {{builder_.call().tokens(), "tokens"}, cols}; }
  Shape own_tokens(Dim cols) const {
    return {{builder_.call().own_tokens(), "tokens", parts()}, cols};
  }

 private:
  Sum sum(ValueId y, std::string_view label, bool waits) const;

  ProgramBuilder& builder_;
  bool is_shared_;
};

}  // namespace smp::program
