#pragma once

#include <cstdint>

#include "kernels/block_product.h"
#include "kernels/dropout.h"
#include "smp/plan/model/token_slices.h"

// The inner loops of attention, over one head at a time; attention_strips.h says how they make a
// whole.
namespace smp::kernels {

// The keys of a block that a strip of queries sees: row r the columns from begin[r] to end[r]. The
// columns before `first` are not worked on at all, nor those from worked_end() on.
struct VisibleKeys {
  int64_t first = 0;
  int64_t last = 0;  // the end of the columns that any row sees
  int64_t begin[kProductRows] = {};
  int64_t end[kProductRows] = {};
  int64_t queries[kProductRows] = {};  // positions in the sample
  model::TokenSlices keys;             // theirs

  // Strips of keys are multiplied as a whole.
  int64_t worked_end() const { return (last + kProductRows - 1) / kProductRows * kProductRows; }
};

#define SMP_LOOPS_OF(T)                                                                            \
  /* Rotates pairs (i, i + dim / 2) of the first `dim` elements of each row, as transformers'      \
     rotate_half does, by a table of cosines and sines [rows, dim]; direction -1 turns back; the   \
     other elements are copied; `to` may be `from`. */                                             \
  void rotate(int64_t rows, int64_t head_dim, int64_t dim, const T* table, T direction,            \
              const T* from, int64_t from_stride, T* to, int64_t to_stride);                       \
  /* to [rows, cols] = from + bias; bias may be null, `to` may be `from`. */                       \
  void copy_rows(int64_t rows, int64_t cols, const T* from, int64_t stride, const T* bias, T* to); \
  /* to [head_dim, row] = from [s, head_dim] transposed, its rows filled up with zeros. */         \
  void transpose(int64_t s, int64_t head_dim, const T* from, int64_t row, T* to);                  \
  /* A strip of scores: exponentials of those that a row sees, zeros for the strip's others. The   \
     head's sink, which may be null, counts in the sums. A row that sees nothing has no sums. */   \
  void softmax(int64_t rows, const VisibleKeys& seen, int64_t row, const T* sink, T* scores,       \
               T* inverse_sums, T* log_sums);                                                      \
  /* Of the strip's exponentials what dropout lets go becomes 0, the rest is scaled; `dropout` is  \
     that of the sample's first query. */                                                          \
  void drop_strip(int64_t rows, const VisibleKeys& seen, int64_t row, DropoutRow dropout,          \
                  T* scores);                                                                      \
  void scale_rows(int64_t rows, int64_t cols, int64_t stride, const T* factors, T* x);             \
  /* Joins the softmax over further keys to one that is done: `output` [rows, cols], whose rows    \
     lie `stride` apart, and its log_sums. `values` [rows, cols] are the exponentials times the    \
     values, beside what softmax() gave. A row that sees none of those keys stays as it is. */     \
  void merge_strip(int64_t rows, const VisibleKeys& seen, int64_t cols, const T* values,           \
                   const T* inverse_sums, const T* further_log_sums, int64_t stride, T* output,    \
                   T* log_sums);                                                                   \
  /* scores become probabilities p, their gradients p * (gradient - sum(output * its gradient)).   \
     With dropout, of p and of the gradient. */                                                    \
  void softmax_backward(int64_t rows, const VisibleKeys& seen, int64_t row, int64_t head_dim,      \
                        const T* output, int64_t output_stride, const T* output_gradient,          \
                        const T* log_sums, DropoutRow dropout, T* scores, T* gradients);           \
  /* The gradient of a head's sink: no value is behind it, so that of its probability is 0. */     \
  T sink_gradient(int64_t rows, int64_t head_dim, T sink, const T* output, int64_t output_stride,  \
                  const T* output_gradient, const T* log_sums);                                    \
  /* Row r of a strip and `diagonal` - r on: a query's neighbour sees the same distances, one      \
     earlier. To the scores is added the diagonal; to the diagonal the gradients. */               \
  void add_diagonal(int64_t rows, int64_t cols, const T* diagonal, int64_t row, T* scores);        \
  void add_to_diagonal(int64_t rows, int64_t cols, const T* gradients, int64_t row, T* diagonal);

SMP_LOOPS_OF(float)
SMP_LOOPS_OF(double)
#undef SMP_LOOPS_OF

}  // namespace smp::kernels
