#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "cuda/launches.h"
#include "kernels/device_functions.h"
#include "kernels/element_types.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/parameter_counts.h"

// Attention on a GPU. Heads are unpacked from the projection's rows (heads_body.h), attention runs
// over the heads, and gradients are packed back into rows. torch's flash attention runs if it can
// (DeviceRunner::has_flash). Otherwise torch's products and our softmax run on heads in the wide
// type, for one block of queries at a time. A block has at most `score_elements` scores, or one
// query.
namespace smp::cuda {

template <typename Runner, typename T>
class GpuAttention {
 public:
  using C = kernels::Wide<T>;

  GpuAttention(const Runner& runner, const kernels::AttentionShape& shape,
               const kernels::AttentionInputs& inputs, int64_t score_elements)
      : runner_(runner),
        shape_(shape),
        inputs_(inputs),
        score_elements_(score_elements),
        group_(shape.heads / shape.kv_heads),
        turns_(filled_turns()),
        sinks_(inputs.sinks.defined() ? inputs.sinks.to(c10::CppTypeToScalarType<C>::value)
                                      : at::Tensor()) {
    SMP_CHECK(shape.relative_buckets <= model::kRelativeBuckets);
  }

  void forward(const at::Tensor& output, const at::Tensor& log_sums) const {
    if (has_flash(output)) return flash_forward(output, log_sums);
    const Heads<C> heads = unpacked<C>();
    const at::Tensor k = matrices(heads.k.rows), v = matrices(heads.v.rows);
    const at::Tensor diagonals = filled_diagonals(output);
    for_each_block([&](const ScoreRows& rows) {
      const at::Tensor scores = scores_of(queries(heads.q.rows, rows), k, rows);
      Launches<Runner, T>(runner_).softmax_scores(
          shape_, rows, kernels::data_of<C>(diagonals), kernels::data_of<C>(sinks_),
          kernels::data_of<C>(scores), kernels::data_of<C>(log_sums));
      const at::Tensor made = scores.bmm(v.narrow(1, 0, rows.cols));  // [b kv, m, d]
      at::Tensor to = output.view({shape_.batch, shape_.sequence, shape_.kv_heads, group_, -1})
                          .select(3, rows.member)
                          .narrow(1, rows.first, rows.queries);  // [b, m, kv, d]
      to.copy_(made.view({shape_.batch, shape_.kv_heads, rows.queries, -1}).transpose(1, 2));
    });
  }

  void backward(const at::Tensor& output, const at::Tensor& output_gradient,
                const at::Tensor& log_sums, const kernels::AttentionGradients& gradients) const {
    if (sinks_.defined()) add_sink_gradients(output, output_gradient, log_sums, gradients.sinks);
    if (has_flash(output)) {
      Heads<T> heads = unpacked<T>();
      std::tie(heads.q.rows, heads.k.rows, heads.v.rows) =
          runner_.flash_backward(shape_, heads.q.rows, heads.k.rows, padded(heads.v.rows),
                                 padded(heads_of(output)), padded(heads_of(output_gradient)),
                                 log_sums.view({shape_.batch, shape_.heads, shape_.sequence}));
      heads.v.rows = heads.v.rows.narrow(3, 0, shape_.value_width());
      return pack(heads, gradients);
    }
    Heads<C> heads = unpacked<C>();
    const at::Tensor dout = heads_of(output_gradient).to(heads.q.rows.scalar_type()).contiguous();
    const at::Tensor k = matrices(heads.k.rows), v = matrices(heads.v.rows);
    const at::Tensor dq = ledger::empty_tensor_like(heads.q.rows);
    at::Tensor dk = ledger::zero_tensor_like(k), dv = ledger::zero_tensor_like(v);
    const at::Tensor diagonals = filled_diagonals(output);
    at::Tensor diagonal_gradients;
    if (diagonals.defined()) diagonal_gradients = ledger::zero_tensor_like(diagonals);
    for_each_block([&](const ScoreRows& rows) {
      const at::Tensor q = queries(heads.q.rows, rows), dy = queries(dout, rows);
      const at::Tensor scores = scores_of(q, k, rows), score_gradients = scores_of(dy, v, rows);
      Launches<Runner, T>(runner_).softmax_scores_backward(
          shape_, rows, kernels::data_of<C>(diagonals), kernels::data_of<T>(output),
          kernels::data_of<T>(output_gradient), kernels::data_of<C>(log_sums),
          kernels::data_of<C>(scores), kernels::data_of<C>(score_gradients));
      if (diagonals.defined()) {
        Launches<Runner, T>(runner_).add_to_diagonals(shape_, rows,
                                                      kernels::data_of<C>(score_gradients),
                                                      kernels::data_of<C>(diagonal_gradients));
      }
      queries(dq, rows).copy_(score_gradients.bmm(k.narrow(1, 0, rows.cols)).mul_(shape_.scale));
      dk.narrow(1, 0, rows.cols)
          .baddbmm_(score_gradients.transpose(1, 2), q, /*beta=*/1, shape_.scale);
      dv.narrow(1, 0, rows.cols).baddbmm_(scores.transpose(1, 2), dy);
    });
    if (diagonals.defined()) {
      Launches<Runner, T>(runner_).add_to_table(shape_, kernels::data_of<C>(diagonal_gradients),
                                                kernels::data_of<C>(gradients.table));
    }
    heads.q.rows = dq;
    heads.k.rows = dk;
    heads.v.rows = dv;
    pack(heads, gradients);
  }

 private:
  bool has_flash(const at::Tensor& output) const {
    return runner_.has_flash(shape_, output.scalar_type()) &&
           shape_.value_width() <= shape_.head_dim;
  }

  // torch's flash attention wants values as wide as keys.
  at::Tensor padded(const at::Tensor& values) const {
    const int64_t width = values.size(3);
    if (width == shape_.head_dim) return values;
    const at::Tensor wider = ledger::zero_tensor(
        {values.size(0), values.size(1), values.size(2), shape_.head_dim}, values.options());
    wider.narrow(3, 0, width).copy_(values);
    return wider;
  }

  // It knows no sinks either. With one, each sum of exponentials has a term more, by which all
  // weights of a query shrink alike.
  void flash_forward(const at::Tensor& output, const at::Tensor& log_sums) const {
    const Heads<T> heads = unpacked<T>();
    const auto [padded_output, sums] =
        runner_.flash_forward(shape_, heads.q.rows, heads.k.rows, padded(heads.v.rows));
    const at::Tensor attended = padded_output.narrow(3, 0, shape_.value_width());
    if (!sinks_.defined()) {
      heads_of(output).copy_(attended);
      at::Tensor(log_sums).copy_(sums.reshape({-1}));
      return;
    }
    const at::Tensor with_sinks = sums.logaddexp(sinks_.view({1, -1, 1}));
    heads_of(output).copy_(attended.mul(sums.sub(with_sinks).exp_().unsqueeze(-1)));
    at::Tensor(log_sums).copy_(with_sinks.reshape({-1}));
  }

  // A sink's score has the gradient - weight * (output . output gradient), since it has no value.
  void add_sink_gradients(const at::Tensor& output, const at::Tensor& output_gradient,
                          const at::Tensor& log_sums, at::Tensor to) const {
    const auto wide = sinks_.scalar_type();
    const at::Tensor products =
        heads_of(output).to(wide).mul(heads_of(output_gradient).to(wide)).sum(-1);
    const at::Tensor weights =
        sinks_.view({1, -1, 1}).sub(log_sums.view({shape_.batch, shape_.heads, -1})).exp_();
    to.sub_(weights.mul_(products).sum(at::IntArrayRef({0, 2})));
  }

  // Heads of queries, keys or values, [b, heads, s, d], and the statistics of their norm.
  struct Unpacked {
    at::Tensor rows, stats;
  };
  template <typename R>
  struct Heads {
    Unpacked q, k, v;
  };

  // One kind of heads (queries, keys or values): its columns in the projection's rows, and the
  // transformations between rows and heads.
  struct Kind {
    const at::Tensor& from;
    int64_t first_col, heads, dim, sequence, first_bias;
    bool turns;
    const at::Tensor *weight, *bias;  // the norm's; null: no norm
  };
  Kind q_kind() const {
    return {inputs_.packed,  0, shape_.heads, shape_.head_dim,
            shape_.sequence, 0, true,         &inputs_.q_weight,
            &inputs_.q_bias};
  }
  Kind k_kind() const {
    return {
        kv(), k_col(),           shape_.kv_heads, shape_.head_dim, shape_.keys, shape_.query_cols(),
        true, &inputs_.k_weight, &inputs_.k_bias};
  }
  Kind v_kind() const {
    return {kv(),
            k_col() + shape_.key_cols(),
            shape_.kv_heads,
            shape_.value_width(),
            shape_.keys,
            shape_.query_cols() + shape_.key_cols(),
            false,
            nullptr,
            nullptr};
  }
  const at::Tensor& kv() const { return inputs_.kv.defined() ? inputs_.kv : inputs_.packed; }
  int64_t k_col() const { return inputs_.kv.defined() ? 0 : shape_.query_cols(); }

  template <typename R>
  HeadTensor<T, R> head_tensor(const Kind& kind, const Unpacked& to) const {
    HeadTensor<T, R> tensor;
    tensor.rows = kernels::data_of<R>(to.rows);
    tensor.heads = kind.heads;
    tensor.dim = kind.dim;
    tensor.sequence = kind.sequence;
    tensor.stride = kind.from.size(1);
    if (inputs_.bias.defined()) tensor.bias = kernels::data_of<T>(inputs_.bias) + kind.first_bias;
    if (kind.turns) tensor.turns = kernels::data_of<C>(turns_);
    if (shape_.has_head_norms && kind.weight != nullptr) {
      tensor.norm.weight = kernels::data_of<T>(*kind.weight);
      tensor.norm.bias = kernels::data_of<T>(*kind.bias);
      tensor.stats = kernels::data_of<C>(to.stats);
    }
    return tensor;
  }

  template <typename R>
  Unpacked unpacked(const Kind& kind) const {
    const auto options = kind.from.options();
    Unpacked to;
    to.rows = ledger::empty_tensor({shape_.batch, kind.heads, kind.sequence, kind.dim},
                                   options.dtype(c10::CppTypeToScalarType<R>::value));
    if (shape_.has_head_norms && kind.weight != nullptr) {
      to.stats = ledger::empty_tensor(
          {shape_.batch * kind.sequence * kind.heads, shape_.centered_norms ? 2 : 1},
          kernels::wide_options(kind.from));
    }
    Launches<Runner, T>(runner_).unpack_heads(
        shape_, kernels::data_of<T>(kind.from) + kind.first_col, head_tensor<R>(kind, to));
    return to;
  }
  template <typename R>
  Heads<R> unpacked() const {
    return {unpacked<R>(q_kind()), unpacked<R>(k_kind()), unpacked<R>(v_kind())};
  }

  // Overwrites the projection's rows with their gradients, and adds the norms' gradients.
  template <typename R>
  void pack(const Heads<R>& heads, const kernels::AttentionGradients& gradients) const {
    pack<R>(q_kind(), heads.q, gradients, 0);
    pack<R>(k_kind(), heads.k, gradients, 1);
    pack<R>(v_kind(), heads.v, gradients, 2);
  }
  template <typename R>
  void pack(const Kind& kind, const Unpacked& from, const kernels::AttentionGradients& gradients,
            int64_t row) const {
    const Unpacked rows{from.rows.contiguous(), from.stats};
    const HeadTensor<T, R> tensor = head_tensor<R>(kind, rows);
    C *dweight = nullptr, *dbias = nullptr;
    at::Tensor scratch;
    if (tensor.norm.weight != nullptr) {
      dweight = kernels::data_of<C>(gradients.norms) + row * shape_.head_dim;
      if (tensor.norm.bias != nullptr) dbias = dweight + 2 * shape_.head_dim;
      scratch =
          ledger::empty_tensor({Launches<Runner, T>::column_sums_scratch(
                                   shape_.batch * kind.sequence * kind.heads, shape_.head_dim)},
                               kernels::wide_options(kind.from));
    }
    Launches<Runner, T>(runner_).pack_gradients(shape_, tensor, dweight, dbias,
                                                kernels::data_of<T>(kind.from) + kind.first_col,
                                                kernels::data_of<C>(scratch));
  }

  // Undefined without a rotary embedding.
  at::Tensor filled_turns() const {
    if (shape_.rotary.dim == 0) return {};
    at::Tensor turns =
        ledger::empty_tensor({turns_of(shape_)}, kernels::wide_options(inputs_.packed));
    Launches<Runner, T>(runner_).fill_turns(shape_, kernels::data_of<C>(turns));
    return turns;
  }

  // [heads, distances], undefined without relative positions.
  at::Tensor filled_diagonals(const at::Tensor& like) const {
    if (shape_.relative_buckets == 0) return {};
    at::Tensor diagonals =
        ledger::empty_tensor({shape_.heads, shape_.distances()}, kernels::wide_options(like));
    Launches<Runner, T>(runner_).fill_diagonals(shape_, kernels::data_of<T>(inputs_.table),
                                                kernels::data_of<C>(diagonals));
    return diagonals;
  }

  // Calls body for each block of queries, of one member of each group of heads at a time.
  template <typename Body>
  void for_each_block(const Body& body) const {
    const int64_t matrices = shape_.batch * shape_.kv_heads, s = shape_.sequence;
    const int64_t step =
        std::clamp<int64_t>(score_elements_ / (matrices * shape_.keys), 1, std::max<int64_t>(s, 1));
    for (int64_t member = 0; member < group_; ++member) {
      for (int64_t first = 0; first < s; first += step) {
        const int64_t queries = std::min(step, s - first);
        body({matrices, queries, shape_.causal ? first + queries : shape_.keys, first, member});
      }
    }
  }

  // A view of [b, kv, s, d] as matrices [b kv, s, d].
  at::Tensor matrices(const at::Tensor& rows) const {
    return rows.view({shape_.batch * shape_.kv_heads, rows.size(2), rows.size(3)});
  }
  // A view of the rows of a block, [b kv, m, d], in [b, heads, s, d].
  at::Tensor queries(const at::Tensor& heads, const ScoreRows& rows) const {
    return heads.view({rows.matrices, group_, shape_.sequence, heads.size(3)})
        .select(1, rows.member)
        .narrow(1, rows.first, rows.queries);
  }
  static at::Tensor scores_of(const at::Tensor& rows_of_queries, const at::Tensor& keys,
                              const ScoreRows& rows) {
    return rows_of_queries.bmm(keys.narrow(1, 0, rows.cols).transpose(1, 2));
  }
  // A view of [n, heads * d] as [b, heads, s, d].
  at::Tensor heads_of(const at::Tensor& output) const {
    return output.view({shape_.batch, shape_.sequence, shape_.heads, shape_.value_width()})
        .transpose(1, 2);
  }

  const Runner& runner_;
  const kernels::AttentionShape& shape_;
  const kernels::AttentionInputs& inputs_;
  const int64_t score_elements_, group_;
  const at::Tensor turns_;  // cosines and sines by position (heads_body.h)
  const at::Tensor sinks_;  // wide; undefined without them
};

}  // namespace smp::cuda
