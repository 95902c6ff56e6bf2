#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/activation_body.h"
#include "cuda/column_sums_body.h"
#include "cuda/device_block.cuh"
#include "cuda/launches.h"
#include "cuda/norm_body.h"
#include "cuda/rows_body.h"
#include "cuda/softmax_body.h"
#include "cuda/update_body.h"

namespace smp::cuda {
namespace {

// Enough for every multiprocessor there is, few enough that starting blocks costs nothing.
constexpr int64_t kMostBlocks = 1 << 14;

template <typename Body>
__global__ void __launch_bounds__(kThreads) kernel(const Body body) {
  DeviceBlock block;
  body(block);
}

template <typename Body>
void launch(CUstream_st* stream, int64_t blocks, const Body& body) {
  if (blocks == 0) return;
  kernel<<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kThreads, 0, stream>>>(body);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA refuses a launch: ") + cudaGetErrorString(error));
  }
}

int64_t blocks_of(int64_t elements) { return (elements + kThreads - 1) / kThreads; }

template <typename C, typename Value>
void launch_column_sums(CUstream_st* stream, int64_t rows, int64_t cols, const Value& value,
                        C* total, C* scratch) {
  launch(stream, blocks_of(partials_of(rows) * cols), [=] __device__(DeviceBlock & block) {
    column_partials(block, rows, cols, value, scratch);
  });
  launch(stream, blocks_of(cols), [=] __device__(DeviceBlock & block) {
    add_partials(block, partials_of(rows), cols, scratch, total);
  });
}

// body(std::integral_constant of the kind).
template <typename Body>
void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kGelu: return body(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kRelu: return body(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kSilu: return body(std::integral_constant<Activation, Activation::kSilu>());
  }
}

// body(a null pointer to the type of the range's copy).
template <typename T, typename Body>
void with_copy_type(const UpdateRange<T>& range, const Body& body) {
  if constexpr (sizeof(T) == 4) {
    if (range.copy != nullptr && range.copy_dtype == DType::kBF16) {
      return body(static_cast<c10::BFloat16*>(nullptr));
    }
    return body(static_cast<c10::Half*>(nullptr));
  } else {
    return body(static_cast<T*>(nullptr));
  }
}

template <Activation kKind, typename T>
void launch_activation(CUstream_st* stream, const ActivationShape& shape, const T* u, const T* bias,
                       T* y) {
  launch(stream, blocks_of(shape.rows * shape.cols), [=] __device__(DeviceBlock & block) {
    activation_forward<kKind>(block, shape, u, bias, y);
  });
}

template <Activation kKind, typename T>
void launch_activation_backward(CUstream_st* stream, const ActivationShape& shape, T* u,
                                const T* bias, T* dy) {
  launch(stream, blocks_of(shape.rows * shape.cols), [=] __device__(DeviceBlock & block) {
    activation_backward<kKind>(block, shape, u, bias, dy);
  });
}

template <typename Copy, typename T>
void launch_adamw(CUstream_st* stream, const AdamWElement<T>& element,
                  const UpdateRange<T>& range) {
  launch(stream, blocks_of(range.count), [=] __device__(DeviceBlock & block) {
    update<Copy>(block, range, [&](T gradient, T weight, int64_t i) {
      return element(gradient, weight, range.states[0][i], range.states[1][i]);
    });
  });
}

template <SgdKind kKind, typename Copy, typename T>
void launch_sgd(CUstream_st* stream, const SgdFactors& factors, const UpdateRange<T>& range) {
  const SgdElement<kKind, T> element(factors);
  launch(stream, blocks_of(range.count), [=] __device__(DeviceBlock & block) {
    update<Copy>(block, range, [&](T gradient, T weight, int64_t i) {
      return element(gradient, weight, range.states[0], i);
    });
  });
}

}  // namespace

int64_t Launches::column_sums_scratch(int64_t rows, int64_t cols) {
  return partials_of(rows) * cols;
}

int64_t Launches::squares_partials(int64_t count) { return (count + kOfPartial - 1) / kOfPartial; }

template <typename T>
void Launches::norm_forward(const NormShape& shape, Wide<T> epsilon, const T* x, const T* weight,
                            const T* bias, T* y, Wide<T>* stats) const {
  launch(stream_, shape.rows, [=] __device__(DeviceBlock & block) {
    cuda::norm_forward(block, shape, epsilon, x, weight, bias, y, stats);
  });
}

template <typename T>
void Launches::norm_apply(const NormShape& shape, const T* x, const Wide<T>* stats, const T* weight,
                          const T* bias, T* y) const {
  launch(stream_, shape.rows, [=] __device__(DeviceBlock & block) {
    cuda::norm_apply(block, shape, x, stats, weight, bias, y);
  });
}

template <typename T>
void Launches::norm_backward(const NormShape& shape, const T* dy, const T* x, const Wide<T>* stats,
                             const T* weight, const T* residual, T* dx, Wide<T>* dweight,
                             Wide<T>* dbias, Wide<T>* scratch) const {
  const int64_t cols = shape.cols;
  launch_column_sums(
      stream_, shape.rows, cols,
      [=] __device__(int64_t row, int64_t col) {
        return norm_weight_term(shape, dy, x, stats, row, col);
      },
      dweight, scratch);
  if (dbias != nullptr) add_column_sums(shape.rows, cols, dy, dbias, scratch);
  launch(stream_, shape.rows, [=] __device__(DeviceBlock & block) {
    norm_input_gradient(block, shape, dy, x, stats, weight, residual, dx);
  });
}

template <typename T>
void Launches::activation_forward(const ActivationShape& shape, const T* u, const T* bias,
                                  T* y) const {
  with_activation(shape.activation, [&](auto kind) {
    launch_activation<decltype(kind)::value>(stream_, shape, u, bias, y);
  });
}

template <typename T>
void Launches::activation_backward(const ActivationShape& shape, T* u, const T* bias, T* dy,
                                   Wide<T>* dbias, Wide<T>* scratch) const {
  with_activation(shape.activation, [&](auto kind) {
    launch_activation_backward<decltype(kind)::value>(stream_, shape, u, bias, dy);
  });
  if (bias == nullptr) return;
  add_column_sums(shape.rows, shape.gated ? 2 * shape.cols : shape.cols, shape.gated ? u : dy,
                  dbias, scratch);
}

template <typename T>
void Launches::add_column_sums(int64_t rows, int64_t cols, const T* x, Wide<T>* sums,
                               Wide<T>* scratch) const {
  launch_column_sums(
      stream_, rows, cols,
      [=] __device__(int64_t row, int64_t col) { return Wide<T>(x[row * cols + col]); }, sums,
      scratch);
}

template <typename T>
void Launches::accumulate(int64_t count, const T* x, Wide<T>* sums) const {
  launch(stream_, blocks_of(count),
         [=] __device__(DeviceBlock & block) { cuda::accumulate(block, count, x, sums); });
}

template <typename T>
void Launches::add_residual(int64_t rows, int64_t cols, const T* x, const T* bias, T* y) const {
  launch(stream_, blocks_of(rows * cols), [=] __device__(DeviceBlock & block) {
    cuda::add_residual(block, rows, cols, x, bias, y);
  });
}

template <typename T>
void Launches::take_rows(int64_t count, int64_t cols, int64_t begin, int64_t table_rows,
                         const int64_t* ids, const T* table, T* y) const {
  launch(stream_, blocks_of(count * cols), [=] __device__(DeviceBlock & block) {
    cuda::take_rows(block, count, cols, begin, table_rows, ids, table, y);
  });
}

template <typename T>
void Launches::add_rows(int64_t count, int64_t cols, int64_t begin, int64_t table_rows,
                        const int64_t* sorted, const int64_t* order, const T* x,
                        Wide<T>* table) const {
  launch(stream_, count, [=] __device__(DeviceBlock & block) {
    cuda::add_rows(block, count, cols, begin, table_rows, sorted, order, x, table);
  });
}

template <typename T>
void Launches::row_maxima(int64_t rows, int64_t cols, const T* logits, Wide<T>* maxima) const {
  launch(stream_, rows, [=] __device__(DeviceBlock & block) {
    cuda::row_maxima(block, rows, cols, logits, maxima);
  });
}

template <typename T>
void Launches::softmax_sums(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,
                            const Wide<T>* maxima, const T* logits, Wide<T>* sums,
                            Wide<T>* target_logits) const {
  launch(stream_, rows, [=] __device__(DeviceBlock & block) {
    cuda::softmax_sums(block, rows, cols, begin, targets, maxima, logits, sums, target_logits);
  });
}

template <typename T>
void Launches::softmax_gradient(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,
                                const Wide<T>* maxima, const Wide<T>* sums, Wide<T> scale,
                                T* logits) const {
  launch(stream_, blocks_of(rows * cols), [=] __device__(DeviceBlock & block) {
    cuda::softmax_gradient(block, rows, cols, begin, targets, maxima, sums, scale, logits);
  });
}

template <typename T>
void Launches::unpack_heads(const AttentionShape& shape, const T* rows,
                            const HeadTensor<T>& tensor) const {
  launch(stream_, shape.batch * tensor.sequence * tensor.heads,
         [=] __device__(DeviceBlock & block) { cuda::unpack_heads(block, shape, rows, tensor); });
}

template <typename T>
void Launches::pack_gradients(const AttentionShape& shape, const HeadTensor<T>& tensor,
                              Wide<T>* dweight, Wide<T>* dbias, T* rows, Wide<T>* scratch) const {
  const int64_t count = shape.batch * tensor.sequence * tensor.heads;
  if (dweight != nullptr) {
    launch_column_sums(
        stream_, count, shape.head_dim,
        [=] __device__(int64_t row, int64_t col) {
          return head_norm_term(shape, rows, tensor, row, col).of_weight;
        },
        dweight, scratch);
  }
  if (dbias != nullptr) {
    launch_column_sums(
        stream_, count, shape.head_dim,
        [=] __device__(int64_t row, int64_t col) {
          return head_norm_term(shape, rows, tensor, row, col).of_bias;
        },
        dbias, scratch);
  }
  launch(stream_, count,
         [=] __device__(DeviceBlock & block) { cuda::pack_gradients(block, shape, tensor, rows); });
}

template <typename T>
void Launches::adamw_update(const AdamWFactors& factors, const UpdateRange<T>& range) const {
  const AdamWElement<T> element(factors);
  with_copy_type(range, [&](auto* copy) {
    launch_adamw<std::remove_pointer_t<decltype(copy)>>(stream_, element, range);
  });
}

template <typename T>
void Launches::sgd_update(const SgdFactors& factors, const UpdateRange<T>& range) const {
  with_copy_type(range, [&](auto* copy) {
    using Copy = std::remove_pointer_t<decltype(copy)>;
    switch (kind_of(factors, range.states[0] != nullptr)) {
      case SgdKind::kPlain: return launch_sgd<SgdKind::kPlain, Copy>(stream_, factors, range);
      case SgdKind::kMomentum: return launch_sgd<SgdKind::kMomentum, Copy>(stream_, factors, range);
      case SgdKind::kNesterov: return launch_sgd<SgdKind::kNesterov, Copy>(stream_, factors, range);
    }
  });
}

template <typename T>
void Launches::square_partials(int64_t count, const T* values, double* partials) const {
  launch(stream_, squares_partials(count), [=] __device__(DeviceBlock & block) {
    cuda::square_partials(block, count, values, partials);
  });
}

#define SMP_INSTANTIATE(T)                                                                        \
  template void Launches::norm_forward(const NormShape&, Wide<T>, const T*, const T*, const T*,   \
                                       T*, Wide<T>*) const;                                       \
  template void Launches::norm_apply(const NormShape&, const T*, const Wide<T>*, const T*,        \
                                     const T*, T*) const;                                         \
  template void Launches::norm_backward(const NormShape&, const T*, const T*, const Wide<T>*,     \
                                        const T*, const T*, T*, Wide<T>*, Wide<T>*, Wide<T>*)     \
      const;                                                                                      \
  template void Launches::activation_forward(const ActivationShape&, const T*, const T*, T*)      \
      const;                                                                                      \
  template void Launches::activation_backward(const ActivationShape&, T*, const T*, T*, Wide<T>*, \
                                              Wide<T>*) const;                                    \
  template void Launches::add_column_sums(int64_t, int64_t, const T*, Wide<T>*, Wide<T>*) const;  \
  template void Launches::accumulate(int64_t, const T*, Wide<T>*) const;                          \
  template void Launches::add_residual(int64_t, int64_t, const T*, const T*, T*) const;           \
  template void Launches::take_rows(int64_t, int64_t, int64_t, int64_t, const int64_t*, const T*, \
                                    T*) const;                                                    \
  template void Launches::add_rows(int64_t, int64_t, int64_t, int64_t, const int64_t*,            \
                                   const int64_t*, const T*, Wide<T>*) const;                     \
  template void Launches::row_maxima(int64_t, int64_t, const T*, Wide<T>*) const;                 \
  template void Launches::softmax_sums(int64_t, int64_t, int64_t, const int64_t*, const Wide<T>*, \
                                       const T*, Wide<T>*, Wide<T>*) const;                       \
  template void Launches::softmax_gradient(int64_t, int64_t, int64_t, const int64_t*,             \
                                           const Wide<T>*, const Wide<T>*, Wide<T>, T*) const;    \
  template void Launches::unpack_heads(const AttentionShape&, const T*, const HeadTensor<T>&)     \
      const;                                                                                      \
  template void Launches::pack_gradients(const AttentionShape&, const HeadTensor<T>&, Wide<T>*,   \
                                         Wide<T>*, T*, Wide<T>*) const;

SMP_INSTANTIATE(float)
SMP_INSTANTIATE(double)
SMP_INSTANTIATE(c10::BFloat16)
SMP_INSTANTIATE(c10::Half)
#undef SMP_INSTANTIATE

#define SMP_INSTANTIATE(T)                                                                \
  template void Launches::adamw_update(const AdamWFactors&, const UpdateRange<T>&) const; \
  template void Launches::sgd_update(const SgdFactors&, const UpdateRange<T>&) const;     \
  template void Launches::square_partials(int64_t, const T*, double*) const;

SMP_INSTANTIATE(float)
SMP_INSTANTIATE(double)
#undef SMP_INSTANTIATE

}  // namespace smp::cuda
