#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "kernels/dropout.h"
#include "smp/comm/communicator.h"
#include "smp/runtime/kernels/tensor_parallel.h"

namespace smp::kernels {

// A TensorRegion is where the tensor ranks share a layer's matrices: it begins ahead of a
// column-parallel product and ends behind a row-parallel one (Shoeybi et al. 2019). Outside it are
// norms, residual sums and dropout, on all n tokens or, with split sequences (Korthikanti et al.
// 2022), on the rank's n/t of them: those from rank * n/t on, of the b * s tokens in order.
//
//                      on the way in        inside, of each rank     on the way out
//   plain              [n, h] as it is      its part of the sum      sum over the ranks: [n, h]
//   split sequences    [n/t, h] gathered    its part of the sum      sum, scattered: [n/t, h]
//
// Where the ranks do not share the matrices each computes the whole sum, and nothing is added: of
// split sequences it takes its tokens.
//
// Backward goes through it the other way round, and does the same: the gradient of what came out is
// gathered, that of what went in is summed.
class TensorRegion {
 public:
  TensorRegion() = default;  // of a rank that computes all by itself
  TensorRegion(const TensorParallel& group, bool shares_matrices)
      : group_(group), shares_(shares_matrices) {}

  // A sum under way. Its tensors live until it is waited for.
  class Sum {
   public:
    at::Tensor wait();  // the caller's own from here on

   private:
    friend class TensorRegion;
    at::Tensor addends_, result_;
    comm::WorkPtr work_;
  };

  // x of this rank's tokens -> of all tokens; x itself where it has all. Lets go of x.
  at::Tensor gathered(at::Tensor x, std::string_view label) const;
  // x of each rank, one behind the other; lets go of x.
  at::Tensor gathered_parts(at::Tensor x, std::string_view label) const;
  // y of all tokens, a part of a sum -> the sum, of this rank's tokens.
  at::Tensor summed(at::Tensor y, std::string_view label) const;
  Sum start_sum(at::Tensor y, std::string_view label) const;

  // In place: of what the ranks that share the matrices have each for their part of these.
  void all_reduce(const at::Tensor& tensor, comm::ReduceOp op, std::string_view label) const;
  // In place: of what is each rank's for its tokens alone. Nothing where every rank has all.
  void sum_over_tokens(const at::Tensor& tensor, std::string_view label) const;

  // Of n tokens, the first one that this rank has outside.
  int64_t first_token(int64_t n) const { return parts() == 1 ? 0 : group_.rank * n / parts(); }

  // A dropout of all n tokens, for those that this rank has outside.
  Dropout of_own_tokens(Dropout dropout, int64_t n) const {
    dropout.rows_before += first_token(n);
    return dropout;
  }

  // What this rank holds of the matrices.
  int64_t degree() const { return shares_ ? group_.degree : 1; }
  int64_t rank() const { return shares_ ? group_.rank : 0; }
  // Tokens in a microbatch over those that this rank has outside.
  int64_t parts() const { return group_.parts(); }

 private:
  TensorParallel group_;
  bool shares_ = false;
};

}  // namespace smp::kernels
