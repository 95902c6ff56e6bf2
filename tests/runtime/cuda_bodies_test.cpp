#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "adamw_kernel.h"
#include "cuda/activation_body.h"
#include "cuda/column_sums_body.h"
#include "cuda/heads_body.h"
#include "cuda/norm_body.h"
#include "cuda/rows_body.h"
#include "cuda/softmax_body.h"
#include "cuda/update_body.h"
#include "functions/attention.h"
#include "functions/kernels.h"
#include "host_block.h"
#include "sum_of_squares.h"
#include "tolerances.h"
#include "worst.h"

// The bodies of the CUDA kernels, run on host threads, against the CPU's loops in fp64.
using namespace smp;

namespace {

std::vector<double> random_values(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = double(engine()) / double(1u << 31) - 1.0;
  return values;
}

void check_same(const std::vector<double>& ours, const std::vector<double>& expected) {
  REQUIRE(ours.size() == expected.size());
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    worst = smp::testing::worst_of(worst,
                                   std::abs(ours[i] - expected[i]) / (1 + std::abs(expected[i])));
  }
  CHECK(worst <= tolerance::kDeviceBodiesF64);
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

}  // namespace

TEST_CASE("cuda bodies: norms, forward and backward") {
  for (const bool centered : {true, false}) {
    const NormShape shape{.rows = kRows, .cols = kCols, .centered = centered};
    const std::vector<double> x = random_values(kRows * kCols, 1), weight = random_values(kCols, 2);
    const std::vector<double> bias = random_values(kCols, 3), dy = random_values(kRows * kCols, 4);
    const std::vector<double> residual = random_values(kRows * kCols, 5);
    const double* const b = centered ? bias.data() : nullptr;
    std::vector<double> y(x.size()), stats(static_cast<size_t>(kRows * shape.stats_per_row()));
    std::vector<double> expected_y(x.size()), expected_stats(stats.size());
    norm_forward(shape, 1e-5, x.data(), weight.data(), b, expected_y.data(), expected_stats.data());
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
    std::vector<double> dweight = random_values(kCols, 6), dbias = dweight;
    std::vector<double> expected_dweight = dweight, expected_dbias = dbias;
    norm_backward(shape, dy.data(), x.data(), stats.data(), weight.data(), residual.data(),
                  expected_dx.data(), expected_dweight.data(),
                  centered ? expected_dbias.data() : nullptr);
    add_column_sums_on_host(
        kRows, kCols,
        [&](int64_t row, int64_t col) {
          return cuda::norm_weight_term(shape, dx.data(), x.data(), stats.data(), row, col);
        },
        dweight.data());
    if (centered) {
      add_column_sums_on_host(
          kRows, kCols,
          [&](int64_t row, int64_t col) { return dx[static_cast<size_t>(row * kCols + col)]; },
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

TEST_CASE("cuda bodies: activations, plain and gated, with and without a bias") {
  for (const bool gated : {false, true}) {
    for (const bool has_bias : {false, true}) {
      const ActivationShape shape{kRows, kCols, Activation::kSilu, gated};
      const int64_t u_cols = gated ? 2 * kCols : kCols;
      std::vector<double> u = random_values(kRows * u_cols, 7), expected_u = u;
      std::vector<double> dy = random_values(kRows * kCols, 8), expected_dy = dy;
      const std::vector<double> bias = random_values(u_cols, 9);
      const double* const b = has_bias ? bias.data() : nullptr;
      std::vector<double> y(dy.size()), expected_y(dy.size());
      activation_forward(shape, u.data(), b, expected_y.data());
      launch_on_host(2, 3, [&](HostBlock& block) {
        cuda::activation_forward<Activation::kSilu>(block, shape, u.data(), b, y.data());
      });
      check_same(y, expected_y);
      std::vector<double> unused(static_cast<size_t>(u_cols));
      activation_backward(shape, expected_u.data(), b, expected_dy.data(), unused.data());
      launch_on_host(2, 3, [&](HostBlock& block) {
        cuda::activation_backward<Activation::kSilu>(block, shape, u.data(), b, dy.data());
      });
      check_same(u, expected_u);
      check_same(dy, expected_dy);
    }
  }
}

TEST_CASE("cuda bodies: cross-entropy of a part of the vocabulary") {
  constexpr int64_t kBegin = 10;
  std::vector<int64_t> targets(kRows);
  for (int64_t i = 0; i < kRows; ++i) targets[static_cast<size_t>(i)] = (7 * i) % (kBegin + kCols);
  std::vector<double> logits = random_values(kRows * kCols, 10), expected = logits;
  std::vector<double> maxima(kRows), sums(kRows), own(kRows);
  std::vector<double> expected_maxima(kRows), expected_sums(kRows), expected_own(kRows);
  row_maxima(kRows, kCols, expected.data(), expected_maxima.data());
  exponentials(kRows, kCols, kBegin, targets.data(), expected_maxima.data(), expected.data(),
               expected_sums.data(), expected_own.data());
  softmax_gradient(kRows, kCols, kBegin, targets.data(), expected_sums.data(), 0.25,
                   expected.data());
  launch_on_host(4, 4, [&](HostBlock& block) {
    cuda::row_maxima(block, kRows, kCols, logits.data(), maxima.data());
  });
  launch_on_host(4, 4, [&](HostBlock& block) {
    cuda::softmax_sums(block, kRows, kCols, kBegin, targets.data(), maxima.data(), logits.data(),
                       sums.data(), own.data());
  });
  launch_on_host(2, 4, [&](HostBlock& block) {
    cuda::softmax_gradient(block, kRows, kCols, kBegin, targets.data(), maxima.data(), sums.data(),
                           0.25, logits.data());
  });
  check_same(maxima, expected_maxima);
  check_same(sums, expected_sums);
  check_same(own, expected_own);
  check_same(logits, expected);
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

  std::vector<double> partials(2);
  launch_on_host(2, 4, [&](HostBlock& block) {
    cuda::square_partials(block, kCount, gradients.data(), partials.data());
  });
  const double whole = sum_of_squares(kCount, gradients.data());
  CHECK(std::abs(partials[0] + partials[1] - whole) <= tolerance::kDeviceBodiesF64 * whole);
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
  for (const bool norms : {false, true}) {
    AttentionShape shape;
    shape.batch = 2;
    shape.sequence = 9;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 6;
    shape.keys = shape.sequence;
    shape.scale = 1 / std::sqrt(6.0);
    shape.rotary.dim = 4;
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
        static_cast<size_t>(std::max(shape.forward_scratch(false), shape.backward_scratch(false))));
    attention_forward(shape, given, packed_rows<const double>(shape, expected_packed.data()),
                      expected_out.data(), log_sums.data(), scratch.data());
    attention_backward(shape, given, packed_rows(shape, expected_packed.data()),
                       expected_out.data(), dout.data(), log_sums.data(), scratch.data());

    // The same by way of unpacked heads.
    const auto tensor_of = [&](std::vector<double>& rows, int64_t heads, int64_t first, bool turns,
                               const double* weight, std::vector<double>& stats) {
      rows.resize(static_cast<size_t>(tokens * heads * d));
      stats.resize(static_cast<size_t>(tokens * heads));
      cuda::HeadTensor<double> tensor;
      tensor.rows = rows.data();
      tensor.heads = heads;
      tensor.sequence = shape.sequence;
      tensor.stride = shape.packed_cols();
      tensor.bias = bias.data() + first;
      tensor.turns = turns;
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
        cuda::unpack_heads(block, shape, packed.data() + firsts[i], tensors[i]);
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
      launch_on_host(3, 4,
                     [&](HostBlock& block) { cuda::pack_gradients(block, shape, tensor, rows); });
    }
    check_same(packed, expected_packed);
    if (norms) check_same(norm_gradients, expected_norms);
  }
}
