#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "kernels/dropout.h"
#include "smp/comm/communicator.h"
#include "smp/runtime/kernels/tensor_parallel.h"

namespace smp::kernels {

// A TensorRegion is the tensor-parallel region of a layer: it begins ahead of a column-parallel
// product and ends behind a row-parallel one (Shoeybi et al. 2019). Norms, residual sums and
// dropout are outside it. They work on all n tokens or, with split sequences (sequence parallelism,
// Korthikanti et al. 2022), on the rank's n/t of the b * s tokens, from rank * n/t on.
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
class TensorRegion {
 public:
  TensorRegion() = default;  // without tensor parallelism
  TensorRegion(const TensorParallel& group, bool shares_matrices)
      : group_(group), shares_(shares_matrices) {}

  // A sum in flight. Its tensors live until wait().
  class Sum {
   public:
    at::Tensor wait();  // the caller's own from here on

   private:
    friend class TensorRegion;
    at::Tensor addends_, result_;
    comm::WorkPtr work_;
  };

  // x of this rank's tokens -> x of all tokens; returns x itself if it has all. Frees x.
  at::Tensor gathered(at::Tensor x, std::string_view label) const;
  // Concatenates x of all ranks; frees x.
  at::Tensor gathered_parts(at::Tensor x, std::string_view label) const;
  // y of all tokens, an addend -> the sum over the ranks, for this rank's tokens.
  at::Tensor summed(at::Tensor y, std::string_view label) const;
  Sum start_sum(at::Tensor y, std::string_view label) const;

  // In place over the ranks that split the matrices. Does nothing if they are not split.
  void all_reduce(const at::Tensor& tensor, comm::ReduceOp op, std::string_view label) const;
  // Sums in place a tensor that each rank has computed for its own tokens. Does nothing if every
  // rank has all tokens.
  void sum_over_tokens(const at::Tensor& tensor, std::string_view label) const;

  // The first of n tokens that this rank has outside the region.
  int64_t first_token(int64_t n) const { return parts() == 1 ? 0 : group_.rank * n / parts(); }

  // The dropout of all n tokens, moved to this rank's tokens outside the region.
  Dropout of_own_tokens(Dropout dropout, int64_t n) const {
    dropout.rows_before += first_token(n);
    return dropout;
  }

  // This rank's part of the matrices: `rank` of `degree`.
  int64_t degree() const { return shares_ ? group_.degree : 1; }
  int64_t rank() const { return shares_ ? group_.rank : 0; }
  // The tokens of a microbatch divided by this rank's tokens outside the region.
  int64_t parts() const { return group_.parts(); }

 private:
  TensorParallel group_;
  bool shares_ = false;
};

}  // namespace smp::kernels
