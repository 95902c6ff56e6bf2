#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "smp/plan/program/attention_scratch.h"

// Attention and its gradients against the whole square of scores, computed plainly in fp64: with
// windows and documents that end within a strip of queries, between strips, and between blocks.

namespace smp {
namespace {

using Values = std::vector<double>;

Values some_values(int64_t count, double turn) {
  Values out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(std::sin(turn * static_cast<double>(i) + turn * turn));
  }
  return out;
}

kernels::AttentionShape shape_of(int64_t sequence, int64_t window, int64_t value_dim = 6) {
  kernels::AttentionShape shape;
  shape.batch = 2;
  shape.sequence = shape.keys = sequence;
  shape.window = window;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 6;
  shape.value_dim = value_dim;
  shape.scale = 0.7;
  return shape;
}

struct Attended {
  Values output;
  Values packed_gradient;  // [q heads | k heads | v heads]
};

// One head of one sample, whose documents may be null: rows of q, k, v and of the gradients lie
// `stride` apart.
void plain_head(const kernels::AttentionShape& shape, const int64_t* documents, const double* q,
                const double* k, const double* v, const double* dout, double* out, double* dq,
                double* dk, double* dv) {
  const int64_t s = shape.sequence, d = shape.head_dim, row = shape.packed_cols();
  const int64_t out_row = shape.output_cols(), values = shape.value_width();
  const auto dot = [&](const double* a, const double* b, int64_t count) {
    double sum = 0;
    for (int64_t c = 0; c < count; ++c) sum += a[c] * b[c];
    return sum;
  };
  for (int64_t i = 0; i < s; ++i) {
    int64_t begin = shape.window > 0 ? std::max<int64_t>(0, i + 1 - shape.window) : 0;
    if (documents != nullptr) begin = std::max(begin, documents[i]);
    Values p;
    double sum = 0;
    for (int64_t j = begin; j <= i; ++j) {
      p.push_back(std::exp(shape.scale * dot(q + i * row, k + j * row, d)));
      sum += p.back();
    }
    for (int64_t j = begin; j <= i; ++j) {
      double& weight = p[static_cast<size_t>(j - begin)];
      weight /= sum;
      for (int64_t c = 0; c < values; ++c) out[i * out_row + c] += weight * v[j * row + c];
    }
    const double product = dot(out + i * out_row, dout + i * out_row, values);
    for (int64_t j = begin; j <= i; ++j) {
      const double weight = p[static_cast<size_t>(j - begin)];
      const double dp = dot(dout + i * out_row, v + j * row, values);
      const double ds = shape.scale * weight * (dp - product);
      for (int64_t c = 0; c < d; ++c) {
        dq[i * row + c] += ds * k[j * row + c];
        dk[j * row + c] += ds * q[i * row + c];
      }
      for (int64_t c = 0; c < values; ++c) dv[j * row + c] += weight * dout[i * out_row + c];
    }
  }
}

Attended plain(const kernels::AttentionShape& shape, const Values& packed, const Values& dout) {
  const int64_t s = shape.sequence, d = shape.head_dim, row = shape.packed_cols();
  const int64_t group = shape.heads / shape.kv_heads;
  Attended got{Values(dout.size()), Values(packed.size())};
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t values = shape.value_width(), first = b * s * row;
      const int64_t q = first + h * d, o = b * s * shape.output_cols() + h * values;
      const int64_t k = first + (shape.heads + h / group) * d;
      const int64_t v = first + (shape.heads + shape.kv_heads) * d + h / group * values;
      double* gradient = got.packed_gradient.data();
      plain_head(shape, shape.documents != nullptr ? shape.documents + b * s : nullptr,
                 packed.data() + q, packed.data() + k, packed.data() + v, dout.data() + o,
                 got.output.data() + o, gradient + q, gradient + k, gradient + v);
    }
  }
  return got;
}

template <typename T>
Attended ours(const kernels::AttentionShape& shape, const Values& packed, const Values& dout) {
  std::vector<T> rows(packed.begin(), packed.end()), gradient(dout.begin(), dout.end());
  std::vector<T> output(dout.size());
  std::vector<T> log_sums(static_cast<size_t>(shape.log_sums()));
  // What is never written must never count.
  std::vector<T> scratch(
      static_cast<size_t>(std::max(program::attention_forward_scratch(shape, false),
                                   program::attention_backward_scratch(shape, false))),
      std::nan(""));
  attention_forward(shape, {}, kernels::packed_rows<const T>(shape, rows.data()), all_pairs(shape),
                    output.data(), log_sums.data(), scratch.data());
  std::fill(scratch.begin(), scratch.end(), std::nan(""));
  attention_backward(shape, {}, kernels::packed_rows<T>(shape, rows.data()), all_pairs(shape),
                     output.data(), gradient.data(), log_sums.data(), scratch.data());
  return {Values(output.begin(), output.end()), Values(rows.begin(), rows.end())};
}

// For each of `batch` samples the first tokens of documents whose ends fall anywhere: where
// `mean_length` is small, many are in a strip.
std::vector<int64_t> some_documents(int64_t batch, int64_t sequence, int64_t mean_length,
                                    std::mt19937& random) {
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < batch; ++b) {
    int64_t start = 0;
    for (int64_t i = 0; i < sequence; ++i) {
      if (random() % static_cast<uint32_t>(mean_length) == 0) start = i;
      starts.push_back(start);
    }
  }
  return starts;
}

// Rows [begin, end) of a sample's rows of `cols`.
Values rows_of(const Values& all, int64_t begin, int64_t end, int64_t cols) {
  return {all.begin() + begin * cols, all.begin() + end * cols};
}

double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN too
  }
  return largest;
}

void check_against_plain(const kernels::AttentionShape& shape) {
  const int64_t tokens = shape.batch * shape.sequence;
  const Values packed = some_values(tokens * shape.packed_cols(), 0.37);
  const Values dout = some_values(tokens * shape.output_cols(), 0.91);
  const Attended expected = plain(shape, packed, dout);
  const Attended in_double = ours<double>(shape, packed, dout);
  CHECK(largest_difference(in_double.output, expected.output) < 1e-13);
  CHECK(largest_difference(in_double.packed_gradient, expected.packed_gradient) < 1e-12);
  const Attended in_float = ours<float>(shape, packed, dout);
  CHECK(largest_difference(in_float.output, expected.output) < 1e-5);
  CHECK(largest_difference(in_float.packed_gradient, expected.packed_gradient) < 1e-4);
}

}  // namespace

TEST_CASE("layers: attention with and without a window is that of the whole square of scores") {
  for (const int64_t sequence : {1, 7, 64, 65, 130, 201}) {
    for (const int64_t window : {0, 1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 100, 129, 200, 500}) {
      INFO("sequence ", sequence, " window ", window);
      check_against_plain(shape_of(sequence, window));
    }
  }
}

TEST_CASE("layers: attention with narrower or wider values is that of the whole square of scores") {
  for (const int64_t values : {1, 4, 6, 9}) {
    for (const int64_t sequence : {1, 7, 65, 130}) {
      for (const int64_t window : {0, 9, 64}) {
        INFO("values ", values, " sequence ", sequence, " window ", window);
        check_against_plain(shape_of(sequence, window, values));
      }
    }
  }
}

TEST_CASE("layers: attention within documents is that of the masked square of scores") {
  std::mt19937 random(11);
  for (const int64_t sequence : {1, 2, 7, 8, 9, 17, 63, 64, 65, 130, 201}) {
    for (const int64_t mean_length : {1, 3, 20, 70, 300}) {
      for (const int64_t window : {0, 1, 9, 64, 100}) {
        INFO("sequence ", sequence, " mean length ", mean_length, " window ", window);
        kernels::AttentionShape shape = shape_of(sequence, window);
        const std::vector<int64_t> starts =
            some_documents(shape.batch, sequence, mean_length, random);
        shape.documents = shape.documents_on_host = starts.data();
        check_against_plain(shape);
      }
    }
  }
}

TEST_CASE("layers: rotary positions count from a document's first token") {
  std::mt19937 random(12);
  for (const int64_t sequence : {1, 9, 65, 201}) {
    for (const int64_t mean_length : {2, 30}) {
      INFO("sequence ", sequence, " mean length ", mean_length);
      kernels::AttentionShape shape = shape_of(sequence, 40);
      shape.batch = 1;
      shape.rotary.dim = 4;
      const std::vector<int64_t> starts = some_documents(1, sequence, mean_length, random);
      const Values packed = some_values(sequence * shape.packed_cols(), 0.37);
      const Values dout = some_values(sequence * shape.output_cols(), 0.91);
      shape.documents = shape.documents_on_host = starts.data();
      const Attended together = ours<double>(shape, packed, dout);
      // Each document alone.
      for (int64_t begin = 0, end = 0; begin < sequence; begin = end) {
        while (end < sequence && starts[static_cast<size_t>(end)] == begin) ++end;
        kernels::AttentionShape alone = shape;
        alone.documents = alone.documents_on_host = nullptr;
        alone.sequence = alone.keys = end - begin;
        const Attended expected =
            ours<double>(alone, rows_of(packed, begin, end, shape.packed_cols()),
                         rows_of(dout, begin, end, shape.output_cols()));
        const int64_t out = shape.output_cols(), row = shape.packed_cols();
        CHECK(largest_difference(rows_of(together.output, begin, end, out), expected.output) <
              1e-14);
        CHECK(largest_difference(rows_of(together.packed_gradient, begin, end, row),
                                 expected.packed_gradient) < 1e-14);
      }
    }
  }
}

}  // namespace smp
