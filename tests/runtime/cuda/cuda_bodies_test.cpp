#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cuda/activation_body.h"
#include "cuda/column_sums_body.h"
#include "cuda/dropout_body.h"
#include "cuda/heads_body.h"
#include "cuda/norm_body.h"
#include "cuda/rows_body.h"
#include "cuda/softmax_body.h"
#include "cuda/update_body.h"
#include "kernels/adamw_kernel.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "kernels/sum_of_squares.h"
#include "runtime/host_block.h"
#include "smp/plan/program/attention_scratch.h"
#include "tolerances.h"
#include "worst.h"

// The bodies of the CUDA kernels, run on host threads, against the CPU's loops in fp64.
using namespace smp;
using namespace smp::kernels;

namespace {

std::vector<double> random_values(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = double(engine()) / double(1u << 31) - 1.0;
  return values;
}

void check_same(const std::vector<double>& ours, const std::vector<double>& expected,
                double allowed = tolerance::kDeviceBodiesF64) {
  REQUIRE(ours.size() == expected.size());
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    worst = smp::testing::worst_of(worst,
                                   std::abs(ours[i] - expected[i]) / (1 + std::abs(expected[i])));
  }
  CHECK(worst <= allowed);
}

// total += the column sums of value(row, col), as two launches.
template <typename Value>
void add_column_sums_on_host(int64_t rows, int64_t cols, const Value& value, double* total) {
  std::vector<double> partials(static_cast<size_t>(cuda::partials_of(rows) * cols));
  launch_on_host(2, 4, [&](HostBlock& block) {
    cuda::column_partials(block, rows, cols, value, partials.data());
  });
  launch_on_host(1, 3, [&](HostBlock& block) {
    cuda::add_partials(block, cuda::partials_of(rows), cols, partials.data(), total);
  });
}

constexpr int64_t kRows = 133, kCols = 21;
constexpr int64_t kWidths[] = {kCols, kCols + 1};  // columns one by one, and in strips of fp64

}  // namespace

TEST_CASE("cuda bodies: norms, forward and backward") {
  for (const int64_t cols : kWidths) {
    for (const bool centered : {true, false}) {
      const NormShape shape{.rows = kRows, .cols = cols, .centered = centered};
      const std::vector<double> x = random_values(kRows * cols, 1), weight = random_values(cols, 2);
      const std::vector<double> bias = random_values(cols, 3), dy = random_values(kRows * cols, 4);
      const std::vector<double> residual = random_values(kRows * cols, 5);
      const double* const b = centered ? bias.data() : nullptr;
      std::vector<double> y(x.size()), stats(static_cast<size_t>(kRows * shape.stats_per_row()));
      std::vector<double> expected_y(x.size()), expected_stats(stats.size());
      norm_forward(shape, 1e-5, x.data(), weight.data(), b, expected_y.data(),
                   expected_stats.data());
      launch_on_host(3, 4, [&](HostBlock& block) {
        cuda::norm_forward(block, shape, 1e-5, x.data(), weight.data(), b, y.data(), stats.data());
      });
      check_same(y, expected_y);
      check_same(stats, expected_stats);
      std::fill(y.begin(), y.end(), 0.0);
      launch_on_host(2, 3, [&](HostBlock& block) {
        cuda::norm_apply(block, shape, x.data(), stats.data(), weight.data(), b, y.data());
      });
      check_same(y, expected_y);

      std::vector<double> dx = dy, expected_dx(x.size());
      std::vector<double> dweight = random_values(cols, 6), dbias = dweight;
      std::vector<double> expected_dweight = dweight, expected_dbias = dbias;
      norm_backward(shape, dy.data(), x.data(), stats.data(), weight.data(), residual.data(),
                    expected_dx.data(), expected_dweight.data(),
                    centered ? expected_dbias.data() : nullptr);
      add_column_sums_on_host(
          kRows, cols,
          [&](int64_t row, int64_t col) {
            return cuda::norm_weight_term(shape, dx.data(), x.data(), stats.data(), row, col);
          },
          dweight.data());
      if (centered) {
        add_column_sums_on_host(
            kRows, cols,
            [&](int64_t row, int64_t col) { return dx[static_cast<size_t>(row * cols + col)]; },
            dbias.data());
      }
      launch_on_host(5, 4, [&](HostBlock& block) {
        cuda::norm_input_gradient(block, shape, dx.data(), x.data(), stats.data(), weight.data(),
                                  residual.data(), dx.data());
      });
      check_same(dx, expected_dx);
      check_same(dweight, expected_dweight);
      check_same(dbias, expected_dbias);
    }
  }
}

TEST_CASE("cuda bodies: activations, plain and gated, with and without a bias") {
  for (const int64_t cols : kWidths) {
    for (const bool gated : {false, true}) {
      for (const bool has_bias : {false, true}) {
        const ActivationShape shape{kRows, cols, ActivationKind::kSilu, gated};
        const int64_t u_cols = gated ? 2 * cols : cols;
        std::vector<double> u = random_values(kRows * u_cols, 7), expected_u = u;
        std::vector<double> dy = random_values(kRows * cols, 8), expected_dy = dy;
        const std::vector<double> bias = random_values(u_cols, 9);
        const double* const b = has_bias ? bias.data() : nullptr;
        std::vector<double> y(dy.size()), expected_y(dy.size());
        activation_forward(shape, u.data(), b, expected_y.data());
        launch_on_host(2, 3, [&](HostBlock& block) {
          cuda::activation_forward<ActivationKind::kSilu>(block, shape, u.data(), b, y.data());
        });
        check_same(y, expected_y);
        std::vector<double> unused(static_cast<size_t>(u_cols));
        activation_backward(shape, expected_u.data(), b, expected_dy.data(), unused.data());
        launch_on_host(2, 3, [&](HostBlock& block) {
          cuda::activation_backward<ActivationKind::kSilu>(block, shape, u.data(), b, dy.data());
        });
        check_same(u, expected_u);
        check_same(dy, expected_dy);
      }
    }
  }
}

namespace {

// Against the CPU's loops on the same logits in fp64; `stride` elements from row to row, of which
// NaNs are left alone behind `cols`.
template <typename T>
void check_cross_entropy(int64_t cols, int64_t stride, double allowed) {
  using C = Wide<T>;
  constexpr int64_t kBegin = 10;
  std::vector<int64_t> targets(kRows);
  for (int64_t i = 0; i < kRows; ++i) targets[size_t(i)] = (7 * i) % (kBegin + cols + 2);
  const std::vector<double> drawn = random_values(kRows * cols, 10);
  const T unread = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> logits(size_t(kRows * stride), unread);
  std::vector<double> expected(drawn.size());
  for (int64_t i = 0; i < kRows * cols; ++i) {
    T& logit = logits[size_t(i / cols * stride + i % cols)];
    logit = T(20 * drawn[size_t(i)]);
    expected[size_t(i)] = double(logit);
  }
  std::vector<double> highest(kRows), expected_sums(kRows), expected_own(kRows);
  row_maxima(kRows, cols, expected.data(), highest.data());
  std::vector<C> maxima(kRows), sums(kRows), own(kRows);
  const cuda::LogitRows shape{kRows, cols, stride, kBegin, targets.data()};
  const auto run = [&](int64_t blocks, std::vector<T>& gradient) {
    launch_on_host(blocks, 3, [&](HostBlock& block) {
      cuda::softmax_sums(block, shape, gradient.data(), maxima.data(), sums.data(), own.data());
    });
    for (size_t i = 0; i < kRows; ++i) {
      CHECK(maxima[i] == highest[i]);
      if (i % 2 == 1) maxima[i] += C(0.5);  // of another rank
    }
    launch_on_host(blocks, 2, [&](HostBlock& block) {
      cuda::finish_softmax_sums(block, shape, gradient.data(), maxima.data(), sums.data(),
                                own.data());
    });
    launch_on_host(blocks, 3, [&](HostBlock& block) {
      cuda::softmax_gradient(block, shape, maxima.data(), sums.data(), C(0.25), gradient.data());
    });
  };
  std::vector<T> ours = logits, again = logits;
  run(1, again);
  const std::vector<C> first_sums = sums;
  run(4, ours);
  CHECK(sums == first_sums);
  CHECK(std::memcmp(ours.data(), again.data(), ours.size() * sizeof(T)) == 0);

  const std::vector<double> wide_maxima(maxima.begin(), maxima.end());
  exponentials(kRows, cols, kBegin, targets.data(), wide_maxima.data(), expected.data(),
               expected_sums.data(), expected_own.data());
  softmax_gradient(kRows, cols, kBegin, targets.data(), expected_sums.data(), 0.25,
                   expected.data());
  check_same({sums.begin(), sums.end()}, expected_sums, allowed);
  check_same({own.begin(), own.end()}, expected_own, allowed);
  std::vector<double> gradient;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto first = ours.begin() + row * stride;
    gradient.insert(gradient.end(), first, first + cols);
    for (int64_t c = cols; c < stride; ++c) CHECK(std::isnan(double(first[c])));
  }
  check_same(gradient, expected, std::max(allowed, double(std::numeric_limits<T>::epsilon())));
}

}  // namespace

TEST_CASE("cuda bodies: cross-entropy of a part of the vocabulary, rows apart and close") {
  for (const int64_t cols : {1, 21, 151}) {
    for (const int64_t more : {0, 1, 3, 8}) {  // 151 + 1: rows of whole vectors
      check_cross_entropy<double>(cols, cols + more, tolerance::kDeviceBodiesF64);
      check_cross_entropy<float>(cols, cols + more, tolerance::kDeviceFunctionsF32);
      check_cross_entropy<c10::BFloat16>(cols, cols + more, tolerance::kDeviceFunctionsF32);
      check_cross_entropy<c10::Half>(cols, cols + more, tolerance::kDeviceFunctionsF32);
    }
  }
}

TEST_CASE("cuda bodies: rows of a table by token, and their gradients in order") {
  constexpr int64_t kBegin = 3, kTableRows = 6;
  std::vector<int64_t> ids(kRows), order(kRows);
  for (int64_t i = 0; i < kRows; ++i) ids[static_cast<size_t>(i)] = (5 * i + i / 9) % 11;
  const std::vector<double> table = random_values(kTableRows * kCols, 11);
  std::vector<double> taken(static_cast<size_t>(kRows * kCols)), expected(taken.size());
  const std::vector<double> dx = random_values(kRows * kCols, 12);
  std::vector<double> gradient(table.size()), expected_gradient(table.size());
  for (int64_t n = 0; n < kRows; ++n) {
    const int64_t row = ids[static_cast<size_t>(n)] - kBegin;
    if (row < 0 || row >= kTableRows) continue;
    for (int64_t c = 0; c < kCols; ++c) {
      const auto at = static_cast<size_t>(n * kCols + c), in = static_cast<size_t>(row * kCols + c);
      expected[at] = table[in];
      expected_gradient[in] += dx[at];
    }
  }
  launch_on_host(2, 4, [&](HostBlock& block) {
    cuda::take_rows(block, kRows, kCols, kBegin, kTableRows, ids.data(), table.data(),
                    taken.data());
  });
  CHECK(taken == expected);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
  });
  std::vector<int64_t> sorted;
  for (const int64_t at : order) sorted.push_back(ids[static_cast<size_t>(at)]);
  launch_on_host(3, 4, [&](HostBlock& block) {
    cuda::add_rows(block, kRows, kCols, kBegin, kTableRows, sorted.data(), order.data(), dx.data(),
                   gradient.data());
  });
  CHECK(gradient == expected_gradient);  // the same order: the same bits
}

TEST_CASE("cuda bodies: AdamW with a 16-bit copy, and the norm of gradients") {
  constexpr int64_t kCount = 70001;
  const AdamWFactors factors{.scale = 0.5,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-8,
                             .keep = 0.999,
                             .rate = 1e-3,
                             .inverse_root = 2.0};
  const std::vector<double> start = random_values(kCount, 13);
  std::vector<float> gradients(start.begin(), start.end());
  struct State {
    std::vector<float> w, m, v;
    std::vector<uint16_t> copy;
  };
  State ours{gradients, std::vector<float>(kCount), std::vector<float>(kCount),
             std::vector<uint16_t>(kCount)};
  State expected = ours;
  const auto range_of = [&](State& state) {
    UpdateRange<float> range;
    range.count = kCount;
    range.gradients = gradients.data();
    range.weights = state.w.data();
    range.states = {state.m.data(), state.v.data()};
    range.copy = state.copy.data();
    range.copy_dtype = DType::kBF16;
    return range;
  };
  adamw_update(factors, range_of(expected));
  const UpdateRange<float> range = range_of(ours);
  const AdamWElement<float> element(factors);
  launch_on_host(2, 4, [&](HostBlock& block) {
    cuda::update<c10::BFloat16>(block, range, [&](float g, float w, int64_t i) {
      return element(g, w, range.states[0][i], range.states[1][i]);
    });
  });
  CHECK(ours.w == expected.w);
  CHECK(ours.copy == expected.copy);

  const auto check_squares = [](int64_t count, const auto* values) {
    cuda::SquareRanges ranges;
    ranges.add({0, count});
    std::vector<double> partials(static_cast<size_t>(ranges.partials()));
    std::vector<double> again = partials;
    for (auto [blocks, to] : {std::pair(1, &again), std::pair(2, &partials)}) {
      launch_on_host(blocks, 4, [&](HostBlock& block) {
        cuda::sum_squares(block, ranges, values, to->data());
      });
    }
    CHECK(partials == again);
    const double sum = std::accumulate(partials.begin(), partials.end(), 0.0);
    const double whole = sum_of_squares(count, values);
    CHECK(std::abs(sum - whole) <= tolerance::kDeviceBodiesF64 * whole);
  };
  for (const int64_t first : {0, 1}) {  // strips, and misaligned
    check_squares(kCount - first, gradients.data() + first);
    check_squares(kCount - first, start.data() + first);
  }
}

namespace {

// Attention over unpacked heads, as plainly as can be; and its gradients.
struct PlainAttention {
  int64_t batch, sequence, heads, group, d;

  const double* row(const std::vector<double>& t, int64_t heads_of, int64_t b, int64_t h,
                    int64_t s) const {
    return t.data() + ((b * heads_of + h) * sequence + s) * d;
  }
  double* row(std::vector<double>& t, int64_t heads_of, int64_t b, int64_t h, int64_t s) const {
    return t.data() + ((b * heads_of + h) * sequence + s) * d;
  }

  // out [b * s, heads * d] from q, k, v; with `dout`, their gradients take the place of the three.
  std::vector<double> run(std::vector<double>& q, std::vector<double>& k, std::vector<double>& v,
                          const std::vector<double>* dout) const {
    std::vector<double> out(static_cast<size_t>(batch * sequence * heads * d));
    std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
    const int64_t kv = heads / group;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < sequence; ++i) {
          std::vector<double> p(static_cast<size_t>(i + 1));
          double total = 0;
          for (int64_t j = 0; j <= i; ++j) {
            const double* const a = row(q, heads, b, h, i);
            const double* const c = row(k, kv, b, h / group, j);
            const double score = std::inner_product(a, a + d, c, 0.0) / std::sqrt(double(d));
            total += p[static_cast<size_t>(j)] = std::exp(score);
          }
          double* const o = out.data() + ((b * sequence + i) * heads + h) * d;
          double mean = 0;
          const double* const g =
              dout != nullptr ? dout->data() + ((b * sequence + i) * heads + h) * d : nullptr;
          for (int64_t j = 0; j <= i; ++j) {
            const double share = p[static_cast<size_t>(j)] /= total;
            const double* const value = row(v, kv, b, h / group, j);
            for (int64_t c = 0; c < d; ++c) o[c] += share * value[c];
            if (g != nullptr) mean += share * std::inner_product(g, g + d, value, 0.0);
          }
          for (int64_t j = 0; g != nullptr && j <= i; ++j) {
            const double share = p[static_cast<size_t>(j)];
            const double* const value = row(v, kv, b, h / group, j);
            const double ds =
                share * (std::inner_product(g, g + d, value, 0.0) - mean) / std::sqrt(double(d));
            for (int64_t c = 0; c < d; ++c) {
              row(dv, kv, b, h / group, j)[c] += share * g[c];
              row(dq, heads, b, h, i)[c] += ds * row(k, kv, b, h / group, j)[c];
              row(dk, kv, b, h / group, j)[c] += ds * row(q, heads, b, h, i)[c];
            }
          }
        }
      }
    }
    if (dout != nullptr) {
      q = dq;
      k = dk;
      v = dv;
    }
    return out;
  }
};

}  // namespace

TEST_CASE(
    "cuda bodies: heads unpacked and packed around attention give what the CPU's kernel does") {
  struct Dims {
    int64_t head, rotary;
  };
  for (const bool norms : {false, true}) {
    for (const auto [head_dim, rotary_dim] : {Dims{6, 4}, Dims{6, 6}, Dims{6, 0}, Dims{5, 4}}) {
      AttentionShape shape;
      shape.batch = 2;
      shape.sequence = 9;
      shape.heads = 4;
      shape.kv_heads = 2;
      shape.head_dim = head_dim;
      shape.keys = shape.sequence;
      shape.scale = 1 / std::sqrt(static_cast<double>(head_dim));
      shape.rotary.dim = rotary_dim;
      shape.has_head_norms = norms;
      shape.norm_epsilon = 1e-6;
      const int64_t tokens = shape.batch * shape.sequence, d = shape.head_dim;
      const std::vector<double> bias = random_values(shape.packed_cols(), 14);
      const std::vector<double> q_weight = random_values(d, 15), k_weight = random_values(d, 16);
      const std::vector<double> dout = random_values(tokens * shape.output_cols(), 17);
      std::vector<double> packed = random_values(tokens * shape.packed_cols(), 18);
      std::vector<double> expected_packed = packed;

      // The CPU's kernel.
      std::vector<double> expected_norms(static_cast<size_t>(2 * d));
      AttentionParameters<double> given;
      given.bias = bias.data();
      if (norms) {
        given.q_norm = {q_weight.data(), nullptr, expected_norms.data(), nullptr};
        given.k_norm = {k_weight.data(), nullptr, expected_norms.data() + d, nullptr};
      }
      std::vector<double> expected_out(dout.size());
      std::vector<double> log_sums(static_cast<size_t>(shape.log_sums()));
      std::vector<double> scratch(
          static_cast<size_t>(std::max(program::attention_forward_scratch(shape, false),
                                       program::attention_backward_scratch(shape, false))));
      attention_forward(shape, given, packed_rows<const double>(shape, expected_packed.data()),
                        all_pairs(shape), expected_out.data(), log_sums.data(), scratch.data());
      attention_backward(shape, given, packed_rows(shape, expected_packed.data()), all_pairs(shape),
                         expected_out.data(), dout.data(), log_sums.data(), scratch.data());

      // The same by way of unpacked heads.
      std::vector<double> turns(static_cast<size_t>(cuda::turns_of(shape)));
      launch_on_host(2, 3, [&](HostBlock& block) { cuda::fill_turns(block, shape, turns.data()); });
      const auto tensor_of = [&](std::vector<double>& rows, int64_t heads, int64_t first,
                                 bool does_turn, const double* weight, std::vector<double>& stats) {
        rows.resize(static_cast<size_t>(tokens * heads * d));
        stats.resize(static_cast<size_t>(tokens * heads));
        cuda::HeadTensor<double> tensor;
        tensor.rows = rows.data();
        tensor.heads = heads;
        tensor.dim = d;
        tensor.sequence = shape.sequence;
        tensor.stride = shape.packed_cols();
        tensor.bias = bias.data() + first;
        if (does_turn && rotary_dim > 0) tensor.turns = turns.data();
        tensor.norm.weight = norms ? weight : nullptr;
        tensor.stats = stats.data();
        return tensor;
      };
      const int64_t k_first = shape.query_cols(), v_first = k_first + shape.kv_cols() / 2;
      std::vector<double> q, k, v, q_stats, k_stats, v_stats;
      const std::vector<cuda::HeadTensor<double>> tensors = {
          tensor_of(q, shape.heads, 0, true, q_weight.data(), q_stats),
          tensor_of(k, shape.kv_heads, k_first, true, k_weight.data(), k_stats),
          tensor_of(v, shape.kv_heads, v_first, false, nullptr, v_stats)};
      const int64_t firsts[] = {0, k_first, v_first};
      for (size_t i = 0; i < tensors.size(); ++i) {
        launch_on_host(3, 4, [&](HostBlock& block) {
          const double* const rows = packed.data() + firsts[i];
          if (tensors[i].has_norm())
            return cuda::unpack_normed_heads(block, shape, rows, tensors[i]);
          cuda::unpack_heads(block, shape, rows, tensors[i]);
        });
      }
      const PlainAttention plain{shape.batch, shape.sequence, shape.heads,
                                 shape.heads / shape.kv_heads, d};
      check_same(plain.run(q, k, v, &dout), expected_out);
      std::vector<double> norm_gradients(static_cast<size_t>(2 * d));
      for (size_t i = 0; i < tensors.size(); ++i) {
        const cuda::HeadTensor<double>& tensor = tensors[i];
        double* const rows = packed.data() + firsts[i];
        if (norms && i < 2) {
          add_column_sums_on_host(
              tokens * tensor.heads, d,
              [&](int64_t row, int64_t col) {
                return cuda::head_norm_term(shape, rows, tensor, row, col).of_weight;
              },
              norm_gradients.data() + static_cast<int64_t>(i) * d);
        }
        launch_on_host(3, 4, [&](HostBlock& block) {
          if (tensor.has_norm()) return cuda::pack_normed_gradients(block, shape, tensor, rows);
          cuda::pack_gradients(block, shape, tensor, rows);
        });
      }
      check_same(packed, expected_packed);
      if (norms) check_same(norm_gradients, expected_norms);
    }
  }
}

TEST_CASE("cuda bodies: strips have each element once, whole ones where all lie at 16 bytes") {
  const auto check = [](auto zero, int64_t rows, int64_t cols, bool aligned, int64_t expected) {
    using T = decltype(zero);
    std::vector<std::atomic<int64_t>> widths(static_cast<size_t>(rows * cols));
    launch_on_host(2, 3, [&](HostBlock& block) {
      cuda::for_each_strip<T>(block, rows, cols, aligned, [&](auto width, int64_t row, int64_t c) {
        for (int64_t k = 0; k < width; ++k) {
          widths[static_cast<size_t>(row * cols + c + k)] += width;
        }
      });
    });
    for (const auto& width : widths) CHECK(width == expected);
  };
  for (const int64_t rows : {1, 7}) {
    check(double(), rows, 6, true, 2);
    check(double(), rows, 5, true, 1);
    check(float(), rows, 24, true, 4);
    check(float(), rows, 6, true, 1);
    check(c10::BFloat16(), rows, 24, true, 8);
    check(c10::BFloat16(), rows, 24, false, 1);
    check(c10::Half(), rows, 28, true, 1);
  }
  check(float(), 0, 8, true, 0);
  alignas(16) const float places[8] = {};
  const float* const null = nullptr;
  CHECK(cuda::are_aligned(places, null, places + 4));
  CHECK(!cuda::are_aligned(places, places + 1));
}

namespace {

// What all bodies by element make of the same values, each array `shift` elements behind a multiple
// of 16 bytes.
template <typename T>
class OfElements {
 public:
  explicit OfElements(int64_t shift) : shift_(shift) {}

  // `results` of all that is called one after the other.
  std::vector<double> results;

  void run() {
    constexpr int64_t kTokens = 10, kSequence = 5, kFeatures = 48;
    constexpr int64_t kCount = kTokens * kFeatures;
    using C = Wide<T>;
    Dropout dropout;
    dropout.threshold = 20000;
    dropout.sample_rows = kSequence;
    dropout.first_col = 3;
    const T *const x = drawn<T>(kCount), *const bias = drawn<T>(2 * kFeatures);
    for (const T* const b : {bias, static_cast<const T*>(nullptr)}) {
      T* const y = drawn<T>(kCount);
      launch([&](HostBlock& block) {
        cuda::add_residual(block, kTokens, kFeatures, x, b, y);
        cuda::add_residual_dropped(block, dropout, kTokens, kFeatures, x, b, y);
        cuda::drop(block, dropout, kTokens, kFeatures, y, y);
      });
      keep(kCount, y);
    }
    C* const sums = drawn<C>(kCount);
    launch([&](HostBlock& block) { cuda::accumulate(block, kCount, x, sums); });
    keep(kCount, sums);

    const std::vector<int64_t> ids = {4, 9, 2, 4, 7, 3, 2, 4, 0, 5},
                               sorted = {0, 2, 2, 3, 4, 4, 4, 5, 7, 9};
    const std::vector<int64_t> order = {8, 2, 6, 5, 0, 3, 7, 9, 4, 1};
    T* const taken = drawn<T>(kCount);
    C* const table = drawn<C>(5 * kFeatures);
    launch([&](HostBlock& block) {
      cuda::take_rows(block, kTokens, kFeatures, 1, 5, ids.data(), x, taken);
      cuda::add_rows(block, kTokens, kFeatures, 1, 5, sorted.data(), order.data(), x, table);
    });
    keep(kCount, taken);
    keep(5 * kFeatures, table);

    for (const bool gated : {false, true}) {
      const int64_t u_count = gated ? 2 * kCount : kCount;
      const ActivationShape shape{kTokens, kFeatures, ActivationKind::kGelu, gated};
      T *const u = drawn<T>(u_count), *const y = drawn<T>(kCount), *const dy = drawn<T>(kCount);
      launch([&](HostBlock& block) {
        cuda::activation_forward<ActivationKind::kGelu>(block, shape, u, bias, y);
        cuda::activation_backward<ActivationKind::kGelu>(block, shape, u, bias, dy);
      });
      keep(kCount, y);
      keep(u_count, u);
      keep(kCount, dy);
    }

    const NormShape norm{.rows = kTokens, .cols = kFeatures};
    C* const stats = drawn<C>(2 * kTokens);
    T* const y = drawn<T>(kCount);
    launch([&](HostBlock& block) { cuda::norm_apply(block, norm, x, stats, bias, x, y); });
    keep(kCount, y);

    run_heads<T>(x, bias);
    run_heads<C>(x, bias);
  }

 private:
  template <typename R>
  void run_heads(const T* x, const T* bias) {
    AttentionShape shape;
    shape.batch = 2;
    shape.sequence = shape.keys = 5;
    shape.head_dim = 24;
    for (const int64_t rotary_dim : {0, 16, 8}) {  // none, in strips, not so those of 16 bits
      shape.rotary.dim = rotary_dim;
      Wide<T>* const turns = drawn<Wide<T>>(cuda::turns_of(shape));
      R* const heads = drawn<R>(10 * 48);
      cuda::HeadTensor<T, R> tensor;
      tensor.rows = heads;
      tensor.heads = 2;
      tensor.dim = shape.head_dim;
      tensor.sequence = 5;
      tensor.stride = 48;
      tensor.bias = bias;
      tensor.turns = rotary_dim > 0 ? turns : nullptr;
      T* const rows = drawn<T>(10 * 48);
      launch([&](HostBlock& block) {
        if (rotary_dim > 0) cuda::fill_turns(block, shape, turns);
        cuda::unpack_heads(block, shape, x, tensor);
        cuda::pack_gradients(block, shape, tensor, rows);
      });
      keep(10 * 48, heads);
      keep(10 * 48, rows);
    }
  }

  // One thread: the calls of a launch need not wait for each other's.
  template <typename Body>
  static void launch(const Body& body) {
    launch_on_host(1, 1, body);
  }

  template <typename V>
  V* drawn(int64_t count) {
    const std::vector<double> values = random_values(count, ++seed_);
    auto bytes = std::make_unique<std::byte[]>(static_cast<size_t>(count + shift_) * sizeof(V) +
                                               cuda::kStripBytes);
    void* at = bytes.get();
    size_t space = static_cast<size_t>(count + shift_) * sizeof(V) + cuda::kStripBytes;
    V* const to = static_cast<V*>(std::align(cuda::kStripBytes, sizeof(V), at, space)) + shift_;
    std::copy(values.begin(), values.end(), to);
    memory_.push_back(std::move(bytes));
    return to;
  }

  template <typename V>
  void keep(int64_t count, const V* values) {
    results.insert(results.end(), values, values + count);
  }

  int64_t shift_;
  uint32_t seed_ = 100;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

template <typename T>
std::vector<double> of_elements(int64_t shift) {
  OfElements<T> elements(shift);
  elements.run();
  return elements.results;
}

}  // namespace

TEST_CASE("cuda bodies: what strips make is what single elements do, to the bit") {
  CHECK(of_elements<float>(0) == of_elements<float>(1));
  CHECK(of_elements<c10::BFloat16>(0) == of_elements<c10::BFloat16>(1));
  CHECK(of_elements<c10::Half>(0) == of_elements<c10::Half>(3));
}
