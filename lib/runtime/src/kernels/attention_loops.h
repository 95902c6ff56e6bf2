#pragma once

#include <cstdint>

#include "kernels/dropout.h"

// The inner loops of attention, over one head at a time; attention.cpp says how they make a whole.
namespace smp::kernels {

// The keys that a strip of queries sees: row r those from begin + r * more, or 0, or its document's
// first one, documents[r], up to end + r * more. The columns before `first` are not worked on at
// all.
struct VisibleKeys {
  int64_t first = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t more = 0;
  const int64_t* documents = nullptr;  // null: a sample is one document
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
     head's sink, which may be null, counts in the sums. */                                        \
  void softmax(int64_t rows, const VisibleKeys& seen, int64_t row, const T* sink, T* scores,       \
               T* inverse_sums, T* log_sums);                                                      \
  /* Of the strip's exponentials what dropout lets go becomes 0, the rest is scaled; `dropout` is  \
     that of its first row. */                                                                     \
  void drop_strip(int64_t rows, const VisibleKeys& seen, int64_t row, DropoutRow dropout,          \
                  T* scores);                                                                      \
  void scale_rows(int64_t rows, int64_t cols, int64_t stride, const T* factors, T* x);             \
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
