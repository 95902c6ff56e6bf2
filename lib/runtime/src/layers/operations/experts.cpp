#include <algorithm>

#include "kernels/element_types.h"
#include "kernels/expert_rows.h"
#include "layers/operations/for_each_expert.h"
#include "layers/operations/kernels_of.h"
#include "smp/plan/base/check.h"

// Mixture of experts. Rows are sorted by expert and then by token. What lies behind the last
// expert's has no meaning; products may read a few rows of it, and leave out what these give.
namespace smp::layers {
namespace {

int64_t used_rows(const at::Tensor& ends) {
  return ends.const_data_ptr<int32_t>()[ends.numel() - 1];
}

// The matrix of one of the experts whose matrices lie in `all`.
at::Tensor matrix_of(const at::Tensor& all, int64_t expert, int64_t experts) {
  const int64_t rows = all.size(0) / experts;
  return all.narrow(0, expert * rows, rows);
}

// A row in fp32 or fp64: itself, or a copy that is narrowed when it goes.
template <typename T>
class WideRow {
 public:
  WideRow(T* row, int64_t cols) : row_(row), cols_(cols) {
    if constexpr (kernels::kIsNarrow<T>) {
      if (row == nullptr) return;
      copy_.resize(static_cast<size_t>(cols));
      kernels::widen(cols, row, copy_.data());
    }
  }
  kernels::Wide<T>* data() {
    if constexpr (kernels::kIsNarrow<T>) {
      return row_ == nullptr ? nullptr : copy_.data();
    } else {
      return row_;
    }
  }
  void put_back() {
    if constexpr (kernels::kIsNarrow<T>) {
      if (row_ != nullptr) kernels::narrow(cols_, copy_.data(), row_);
    }
  }

 private:
  T* row_;
  int64_t cols_;
  std::vector<kernels::Wide<T>> copy_;
};

// The operands of an expert's activation, row by row.
struct ActivationRows {
  explicit ActivationRows(const Frame& frame)
      : up(frame.in(0)),
        gate(frame.in(1)),
        weights(frame.in(2)),
        by_expert(frame.in(3)),
        count(frame.has_in(4) ? used_rows(frame.in(4)) : up.size(0)),
        activation(frame.as<program::ExpertAttributes>().activation) {}

  // Where the row's weight is.
  int64_t place(int64_t row) const {
    return by_expert.defined() ? by_expert.const_data_ptr<int32_t>()[row] : row;
  }
  template <typename T>
  T weight(int64_t row) const {
    return weights.defined() ? kernels::data_of<T>(weights)[place(row)] : T(1);
  }

  const at::Tensor &up, &gate, &weights, &by_expert;
  const int64_t count;
  const program::ActivationAttributes& activation;
};

}  // namespace

void run_sort_by_expert(Frame& frame) {
  const auto& experts = frame.as<program::ExpertAttributes>();
  const at::Tensor& chosen = frame.in(0);
  auto* rows = kernels::data_of<int32_t>(frame.make(0));
  auto* ends = kernels::data_of<int32_t>(frame.make(1));
  auto* places = kernels::data_of<int32_t>(frame.make(2));
  const auto* expert = chosen.const_data_ptr<int32_t>();
  const auto own = [&](int64_t i) { return expert[i] - experts.first; };
  std::fill_n(ends, experts.count, 0);
  for (int64_t i = 0; i < chosen.numel(); ++i) {
    if (own(i) >= 0 && own(i) < experts.count) ++ends[own(i)];
  }
  std::vector<int32_t> next;  // row of each expert
  int32_t sum = 0;
  for (int64_t e = 0; e < experts.count; ++e) {
    next.push_back(sum);
    ends[e] = sum += ends[e];
  }
  for (int64_t i = 0; i < chosen.numel(); ++i) {
    places[i] = -1;
    if (own(i) < 0 || own(i) >= experts.count) continue;
    places[i] = next[static_cast<size_t>(own(i))]++;
    rows[places[i]] = static_cast<int32_t>(i);
  }
}

void run_dispatch(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& rows = frame.in(1);
  const at::Tensor& y = frame.make(0);
  const int64_t used = used_rows(frame.in(2)), cols = x.size(1);
  const auto* row = rows.const_data_ptr<int32_t>();
  const int64_t per_token = frame.as<program::ExpertAttributes>().per_token;
  kernels::with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = kernels::data_of<T>(x);
    T* to = kernels::data_of<T>(y);
    for (int64_t r = 0; r < used; ++r) {
      std::copy_n(from + row[r] / per_token * cols, cols, to + r * cols);
    }
  });
}

void run_combine(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& places = frame.in(1);
  const at::Tensor& y = frame.make(0);
  const int64_t cols = x.size(1), per_token = places.size(1);
  const auto* place = places.const_data_ptr<int32_t>();
  kernels::with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = kernels::data_of<T>(x);
    T* to = kernels::data_of<T>(y);
    std::vector<kernels::Wide<T>> sum(static_cast<size_t>(cols));
    for (int64_t t = 0; t < y.size(0); ++t) {
      std::fill(sum.begin(), sum.end(), 0);
      for (int64_t k = 0; k < per_token; ++k) {
        const int32_t row = place[t * per_token + k];
        if (row >= 0) kernels::accumulate(cols, from + row * cols, sum.data());
      }
      for (int64_t c = 0; c < cols; ++c) {
        to[t * cols + c] = static_cast<T>(sum[static_cast<size_t>(c)]);
      }
    }
  });
}

namespace {

// The rows of an expert times its matrix [out, in], transposed. The product also takes rows behind
// them, whose results are left out.
void put_product(const at::Tensor& x, const at::Tensor& weight, int64_t first, int64_t rows,
                 const at::Tensor& y) {
  const int64_t taken = std::min(program::padded_expert_rows(rows), x.size(0) - first);
  y.narrow(0, first, rows)
      .copy_(
          kernels::functions_of(x).product(x.narrow(0, first, taken), weight).narrow(0, 0, rows));
}

// Rows with zeros behind them; of fp64, whose product is not oneDNN's, the rows themselves.
at::Tensor padded_rows(const at::Tensor& x, int64_t first, int64_t rows) {
  const at::Tensor own = x.narrow(0, first, rows);
  const int64_t padded = program::padded_expert_rows(rows);
  if (x.scalar_type() == at::kDouble || padded == rows) return own;
  at::Tensor all = ledger::empty_tensor({padded, x.size(1)}, x.options());
  all.narrow(0, 0, rows).copy_(own);
  all.narrow(0, rows, padded - rows).zero_();
  return all;
}

}  // namespace

void run_expert_product(Frame& frame) {
  const int64_t experts = frame.as<program::ExpertAttributes>().count;
  const at::Tensor& x = frame.in(0);
  const at::Tensor& weight = frame.in(1);
  const at::Tensor& y = frame.make(0);
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    put_product(x, matrix_of(weight, expert, experts), first, rows, y);
  });
  if (frame.has_in(3)) add_expert_biases(frame, y);
}

void run_expert_input_gradient(Frame& frame) {
  const int64_t experts = frame.as<program::ExpertAttributes>().count;
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& weight = frame.in(1);
  const at::Tensor& dx = frame.make(0);
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    put_product(dy, matrix_of(weight, expert, experts).t(), first, rows, dx);
  });
}

void run_expert_weight_gradient(Frame& frame) {
  const int64_t experts = frame.as<program::ExpertAttributes>().count;
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& x = frame.in(1);
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    kernels::functions_of(dy).add_product(padded_rows(dy, first, rows), padded_rows(x, first, rows),
                                          1, matrix_of(frame.gradient(0), expert, experts));
  });
}

void run_expert_activation(Frame& frame) {
  const ActivationRows rows(frame);
  const at::Tensor& y = frame.make(0);
  const int64_t cols = rows.up.size(1);
  kernels::with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    using C = kernels::Wide<T>;
    T *up = kernels::data_of<T>(rows.up), *gate = kernels::data_of<T>(rows.gate);
    for (int64_t r = 0; r < rows.count; ++r) {
      WideRow<T> wide_up(up + r * cols, cols),
          wide_gate(gate == nullptr ? nullptr : gate + r * cols, cols),
          result(kernels::data_of<T>(y) + r * cols, cols);
      kernels::expert_row_forward(rows.activation, cols, rows.weight<C>(r), wide_gate.data(),
                                  wide_up.data(), result.data());
      result.put_back();
    }
  });
}

void run_expert_activation_backward(Frame& frame) {
  const ActivationRows rows(frame);
  const at::Tensor& dy = frame.in(5);
  at::Tensor d_weights;
  if (frame.has_out(3)) d_weights = frame.make_zero(3);
  const int64_t cols = rows.up.size(1);
  kernels::with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    using C = kernels::Wide<T>;
    T *up = kernels::data_of<T>(rows.up), *gate = kernels::data_of<T>(rows.gate);
    for (int64_t r = 0; r < rows.count; ++r) {
      WideRow<T> wide_up(up + r * cols, cols),
          wide_gate(gate == nullptr ? nullptr : gate + r * cols, cols),
          result(kernels::data_of<T>(dy) + r * cols, cols);
      const C d_weight =
          kernels::expert_row_backward(rows.activation, cols, rows.weight<C>(r), wide_gate.data(),
                                       wide_up.data(), result.data());
      for (WideRow<T>* row : {&wide_up, &wide_gate, &result}) row->put_back();
      if (d_weights.defined()) kernels::data_of<C>(d_weights)[rows.place(r)] = d_weight;
    }
  });
  frame.set_over(0, rows.up);
  if (rows.gate.defined()) frame.set_over(1, rows.gate);
  frame.set_over(2, dy);
}

}  // namespace smp::layers
