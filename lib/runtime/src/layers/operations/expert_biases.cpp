#include "kernels/element_types.h"
#include "layers/operations/for_each_expert.h"
#include "layers/operations/kernels_of.h"

// Biases of experts, of all experts in one vector. The weight of a row applies to the bias of the
// second matrix: the other ones lie ahead of where rows are weighed.
namespace smp::layers {
namespace {

// The weights of rows: 1 where there are none.
template <typename C>
class RowWeights {
 public:
  // The operands `first` and the one behind it.
  RowWeights(const Frame& frame, size_t first)
      : weights_(kernels::data_of<C>(frame.in(first))),
        places_(kernels::data_of<int32_t>(frame.in(first + 1))) {}

  C of(int64_t row) const { return weights_ != nullptr ? weights_[places_[row]] : C(1); }
  int64_t place(int64_t row) const { return places_[row]; }

 private:
  const C* weights_;
  const int32_t* places_;
};

}  // namespace

void add_expert_biases(const Frame& frame, const at::Tensor& y) {
  const int64_t cols = y.size(1);
  kernels::with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    using C = kernels::Wide<T>;
    const at::Tensor& bias = frame.in(3);
    const kernels::WideVector<T> biases(bias.numel(), kernels::data_of<T>(bias));
    const RowWeights<C> weights(frame, 4);
    for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
      const C* own = biases.data() + expert * cols;
      for (int64_t r = first; r < first + rows; ++r) {
        T* row = kernels::data_of<T>(y) + r * cols;
        const C weight = weights.of(r);
        for (int64_t c = 0; c < cols; ++c) {
          row[c] = static_cast<T>(static_cast<C>(row[c]) + weight * own[c]);
        }
      }
    });
  });
}

void run_expert_bias_gradient(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& bias = frame.in(2);
  const at::Tensor& d_weights = frame.in(5);
  const int64_t cols = dy.size(1);
  kernels::with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    using C = kernels::Wide<T>;
    const kernels::WideVector<T> biases(bias.defined() ? bias.numel() : 0,
                                        kernels::data_of<T>(bias));
    const RowWeights<C> weights(frame, 3);
    for_each_expert(frame.in(1), [&](int64_t expert, int64_t first, int64_t rows) {
      C* gradient = kernels::data_of<C>(frame.gradient(0)) + expert * cols;
      for (int64_t r = first; r < first + rows; ++r) {
        const T* row = kernels::data_of<T>(dy) + r * cols;
        const C weight = weights.of(r);
        for (int64_t c = 0; c < cols; ++c) gradient[c] += weight * static_cast<C>(row[c]);
        if (!d_weights.defined()) continue;
        const C* own = biases.data() + expert * cols;
        C sum = 0;
        for (int64_t c = 0; c < cols; ++c) sum += static_cast<C>(row[c]) * own[c];
        kernels::data_of<C>(d_weights)[weights.place(r)] += sum;
      }
    });
  });
  if (frame.has_out(0)) frame.set_over(0, d_weights);
}

}  // namespace smp::layers
