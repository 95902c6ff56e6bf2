#pragma once

#include <cstdint>

#include "kernels/dropout_row.h"
#include "kernels/host_device.h"
#include "kernels/wide.h"
#include "smp/plan/base/philox.h"
#include "smp/plan/program/attributes.h"
#include "smp/runtime/kernels/call_context.h"

// Dropout without stored masks. Whether an element is kept is a function of its position in the
// whole model and the global batch. So backward, recomputation and every layout draw the same mask.
namespace smp::kernels {

using program::DropoutSite;

// TokenSlices::position(), on GPUs as well.
SMP_HOST_DEVICE int64_t token_position(const model::TokenSlices& slices, int64_t row) {
  if (slices.length == 0) return row;
  return row < slices.length ? slices.early + row : slices.late + row - slices.length;
}

// The dropout of one site in one call, whose tensors have rows of several samples.
struct Dropout {
  PhiloxKey key{};
  uint32_t threshold = 0;
  int64_t first_sample = 0;
  int64_t sample_rows = 1;         // rows of each sample that are here
  int64_t first_row = 0;           // of these in the sample
  model::TokenSlices slices = {};  // which of its tokens they are
  int64_t first_col = 0;           // of the tensors in the whole row
  int64_t rows_before = 0;         // of the call, before those of the tensors

  SMP_HOST_DEVICE bool is_on() const { return threshold > 0; }
  SMP_HOST_DEVICE DropoutRow row(int64_t r) const {
    const int64_t at = rows_before + r;
    return {key, threshold,
            static_cast<uint32_t>(first_row + token_position(slices, at % sample_rows)), 0,
            static_cast<uint32_t>(first_sample + at / sample_rows)};
  }
  // Of the rows from `first` on.
  Dropout from_row(int64_t first) const {
    Dropout result = *this;
    result.rows_before += first;
    return result;
  }
};

// The share is rounded to 1/65536; what is kept is scaled by the rounded share. Not on where the
// call does not train.
Dropout dropout_of(const program::DropoutAttributes& attributes, const CallContext& call);

#define SMP_DROPOUT_OF(T)                                                                   \
  /* y = x [rows, cols] where it is kept, times the factor, else 0; y may be x. */          \
  void drop(const Dropout& dropout, int64_t rows, int64_t cols, const T* x, T* y);          \
  /* y = x + drop(y + bias); bias may be null. */                                           \
  void add_residual_dropped(const Dropout& dropout, int64_t rows, int64_t cols, const T* x, \
                            const T* bias, T* y);

SMP_DROPOUT_OF(float)
SMP_DROPOUT_OF(double)
SMP_DROPOUT_OF(c10::BFloat16)
SMP_DROPOUT_OF(c10::Half)
#undef SMP_DROPOUT_OF

}  // namespace smp::kernels
