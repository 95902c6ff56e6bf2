#include <ATen/ops/empty.h>

#include <algorithm>

#include "layers/parameter_views.h"
#include "smp/plan/check.h"
#include "smp/plan/collective.h"

namespace smp {
namespace {

// Token rows, cut by vocabulary over the tensor ranks and summed, plus (GPT-2) position rows, which
// every rank holds and adds after the sum.
class Embedding final : public Layer {
 public:
  Embedding(const ModelSpec& model, const ParameterViews& parameters, const TensorParallel& group)
      : tokens_(parameters.at("tokens.weight")),
        positions_(parameters.at("positions.weight")),
        layer_(parameters.layer()),
        hidden_dropout_(model.hidden_dropout),
        vocab_size_(model.vocab_size),
        begin_(part_begin(model.vocab_size, group.degree, group.rank)),
        group_(group) {
    SMP_CHECK_EQ(tokens_.weight.size(0), part_size(vocab_size_, group.degree, group.rank));
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs, const CallContext& call,
                                  Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const CallContext& call, WeightWork* later) override;

 private:
  // Row of `token` in this rank's part, or -1.
  int64_t local_row(int64_t token) const {
    SMP_CHECK(token >= 0 && token < vocab_size_);
    const int64_t row = token - begin_;
    return row >= 0 && row < tokens_.weight.size(0) ? row : -1;
  }

  // x [b, s, h]
  Dropout dropout(const at::Tensor& x, const CallContext& call) const {
    return dropout_of(hidden_dropout_, call, layer_, DropoutSite::kOutput, x.size(1));
  }

  Parameter tokens_, positions_;
  int64_t layer_;
  double hidden_dropout_;
  int64_t vocab_size_, begin_;
  TensorParallel group_;
};

std::vector<at::Tensor> Embedding::forward(const std::vector<at::Tensor>& inputs,
                                           const CallContext& call, Saved* saved) {
  const at::Tensor& tokens = inputs.at(0);
  const int64_t batch = tokens.size(0), sequence = tokens.size(1), h = tokens_.weight.size(1);
  const int64_t* ids = tokens.const_data_ptr<int64_t>();
  at::Tensor x = at::empty({batch, sequence, h}, tokens_.weight.options());
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    T* out = data_of<T>(x);
    for (int64_t n = 0; n < batch * sequence; ++n, out += h) {
      const int64_t row = local_row(ids[n]);
      if (row < 0) {
        std::fill_n(out, h, T(0));
      } else {
        std::copy_n(data_of<T>(tokens_.weight) + row * h, h, out);
      }
    }
  });
  all_reduce(group_, x, ReduceOp::kSum, "tensor.forward");
  if (positions_.defined()) {
    SMP_CHECK(sequence <= positions_.weight.size(0));
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t b = 0; b < batch; ++b) {
        add_residual(sequence, h, data_of<T>(positions_.weight), nullptr,
                     data_of<T>(x) + b * sequence * h);
      }
    });
  }
  if (const Dropout drops = dropout(x, call); drops.is_on()) {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      drop(drops, batch * sequence, h, data_of<T>(x), data_of<T>(x));
    });
  }
  if (saved != nullptr) *saved = {tokens};
  return {std::move(x)};
}

// Adding rows is all there is to do: nothing is worth putting off.
std::vector<at::Tensor> Embedding::backward(Saved saved, std::vector<at::Tensor> gradients,
                                            const CallContext& call, WeightWork* /*later*/) {
  const at::Tensor given = gradients.at(0).contiguous();
  const at::Tensor dx = dropped(dropout(given, call), given);
  const int64_t batch = dx.size(0), sequence = dx.size(1), h = dx.size(2);
  const int64_t* ids = saved.at(0).const_data_ptr<int64_t>();
  with_element_type(dx, [&](auto zero) {
    using T = decltype(zero);
    const T* rows = data_of<T>(dx);
    for (int64_t n = 0; n < batch * sequence; ++n) {
      const int64_t row = local_row(ids[n]);
      if (row < 0) continue;
      accumulate(h, rows + n * h, data_of<Wide<T>>(tokens_.gradient) + row * h);
    }
    for (int64_t b = 0; b < batch && positions_.defined(); ++b) {
      accumulate(sequence * h, rows + b * sequence * h, data_of<Wide<T>>(positions_.gradient));
    }
  });
  return {at::Tensor()};
}

}  // namespace

std::unique_ptr<Layer> make_embedding(const ModelSpec& model, const ParameterViews& parameters,
                                      const TensorParallel& group) {
  return std::make_unique<Embedding>(model, parameters, group);
}

}  // namespace smp
