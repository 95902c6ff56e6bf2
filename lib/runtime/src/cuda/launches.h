#pragma once

#include <cstdint>

#include "adamw_kernel.h"
#include "cuda/heads_body.h"
#include "functions/kernels.h"
#include "sgd_kernel.h"

struct CUstream_st;  // a cudaStream_t is a pointer to it

// The kernels' launches on one stream: each returns before its work is done. Pointers are to memory
// of the GPU that is current; T is float, double, bf16 or fp16. What each computes is said where
// its body is. Throws std::runtime_error where a launch is refused. Scratch is the caller's.
namespace smp::cuda {

class Launches {
 public:
  explicit Launches(CUstream_st* stream) : stream_(stream) {}

  template <typename T>
  void norm_forward(const NormShape& shape, Wide<T> epsilon, const T* x, const T* weight,
                    const T* bias, T* y, Wide<T>* stats) const;
  template <typename T>
  void norm_apply(const NormShape& shape, const T* x, const Wide<T>* stats, const T* weight,
                  const T* bias, T* y) const;
  // Adds to dweight and dbias; dx may be dy. Scratch: column_sums_scratch().
  template <typename T>
  void norm_backward(const NormShape& shape, const T* dy, const T* x, const Wide<T>* stats,
                     const T* weight, const T* residual, T* dx, Wide<T>* dweight, Wide<T>* dbias,
                     Wide<T>* scratch) const;

  template <typename T>
  void activation_forward(const ActivationShape& shape, const T* u, const T* bias, T* y) const;
  // Adds to dbias, unless bias is null. Scratch: column_sums_scratch() of u.
  template <typename T>
  void activation_backward(const ActivationShape& shape, T* u, const T* bias, T* dy, Wide<T>* dbias,
                           Wide<T>* scratch) const;

  // sums += the column sums of x.
  template <typename T>
  void add_column_sums(int64_t rows, int64_t cols, const T* x, Wide<T>* sums,
                       Wide<T>* scratch) const;
  template <typename T>
  void accumulate(int64_t count, const T* x, Wide<T>* sums) const;
  template <typename T>
  void add_residual(int64_t rows, int64_t cols, const T* x, const T* bias, T* y) const;

  template <typename T>
  void take_rows(int64_t count, int64_t cols, int64_t begin, int64_t table_rows, const int64_t* ids,
                 const T* table, T* y) const;
  template <typename T>
  void add_rows(int64_t count, int64_t cols, int64_t begin, int64_t table_rows,
                const int64_t* sorted, const int64_t* order, const T* x, Wide<T>* table) const;

  template <typename T>
  void row_maxima(int64_t rows, int64_t cols, const T* logits, Wide<T>* maxima) const;
  template <typename T>
  void softmax_sums(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,
                    const Wide<T>* maxima, const T* logits, Wide<T>* sums,
                    Wide<T>* target_logits) const;
  template <typename T>
  void softmax_gradient(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,
                        const Wide<T>* maxima, const Wide<T>* sums, Wide<T> scale, T* logits) const;

  template <typename T>
  void unpack_heads(const AttentionShape& shape, const T* rows, const HeadTensor<T>& tensor) const;
  // Adds to the norm's gradients, where it has them. Scratch: column_sums_scratch() of the tensor's
  // head rows.
  template <typename T>
  void pack_gradients(const AttentionShape& shape, const HeadTensor<T>& tensor, Wide<T>* dweight,
                      Wide<T>* dbias, T* rows, Wide<T>* scratch) const;

  // T: float or double.
  template <typename T>
  void adamw_update(const AdamWFactors& factors, const UpdateRange<T>& range) const;
  template <typename T>
  void sgd_update(const SgdFactors& factors, const UpdateRange<T>& range) const;
  // partials [squares_partials(count)], to be added in order.
  template <typename T>
  void square_partials(int64_t count, const T* values, double* partials) const;

  // Elements.
  static int64_t column_sums_scratch(int64_t rows, int64_t cols);
  static int64_t squares_partials(int64_t count);

 private:
  CUstream_st* stream_;
};

}  // namespace smp::cuda
