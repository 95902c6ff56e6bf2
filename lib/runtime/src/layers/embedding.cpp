#include <algorithm>

#include "layers/parameter_views.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"
#include "smp/plan/mesh/collective.h"

namespace smp::layers {
namespace {

// A vocabulary-parallel embedding: token rows, split over the tensor ranks and summed, plus (GPT-2)
// position rows, which every rank holds and adds after the sum. In an encoder_decoder it embeds the
// tokens of both stacks, [2, b, s], and passes on copies of the tables of relative positions,
// because with ZeRO-3 other layers reuse the buffer of its weights.
class Embedding final : public Layer {
 public:
  Embedding(const ModelSpec& model, const ParameterViews& parameters,
            const kernels::TensorRegion& region)
      : tokens_(parameters.at("tokens.weight")),
        positions_(parameters.at("positions.weight")),
        layer_(parameters.layer()),
        hidden_dropout_(model.hidden_dropout),
        encoder_table_(parameters.at("relative.weight")),
        decoder_table_(parameters.at("decoder_relative.weight")),
        is_of_two_(model.stack == Stack::kEncoderDecoder),
        vocab_size_(model.vocab_size),
        begin_(mesh::part_begin(model.vocab_size, region.degree(), region.rank())),
        region_(region) {
    SMP_CHECK_EQ(tokens_.weight.size(0),
                 mesh::part_size(vocab_size_, region.degree(), region.rank()));
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const kernels::CallContext& call, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const kernels::CallContext& call,
                                   DeferredWeightGradients* deferred) override;

 private:
  void add_positions(const at::Tensor& x, int64_t first, int64_t sequence,
                     const kernels::CallContext& call) const;
  // Of what goes to the next layer: of this rank's of `tokens` [b, s]. `stack` is 1 for the
  // decoder's tokens, rows of a sample behind the encoder's.
  kernels::Dropout dropout(const at::Tensor& tokens, int64_t stack,
                           const kernels::CallContext& call) const {
    const int64_t sequence = tokens.size(1);
    kernels::Dropout drops =
        kernels::dropout_of(hidden_dropout_, call, layer_, kernels::DropoutSite::kOutput, sequence);
    drops.first_row = stack * sequence;
    return region_.of_own_tokens(drops, tokens.numel());
  }
  at::Tensor embed(const at::Tensor& tokens, int64_t stack, const kernels::CallContext& call) const;
  void add_gradient(const at::Tensor& tokens, const at::Tensor& gradient, int64_t stack,
                    const kernels::CallContext& call) const;

  kernels::Parameter tokens_, positions_;
  int64_t layer_;
  double hidden_dropout_;
  kernels::Parameter encoder_table_, decoder_table_;
  bool is_of_two_;
  int64_t vocab_size_, begin_;
  kernels::TensorRegion region_;
};

at::Tensor Embedding::embed(const at::Tensor& tokens, int64_t stack,
                            const kernels::CallContext& call) const {
  const int64_t batch = tokens.size(0), sequence = tokens.size(1), h = tokens_.weight.size(1);
  // Of a shared vocabulary each rank has rows for any token; of a whole one it has all for its own.
  const bool is_shared = region_.degree() > 1;
  const int64_t all = batch * sequence, first = region_.first_token(all);
  at::Tensor x =
      ledger::empty_tensor({is_shared ? all : all / region_.parts(), h}, tokens_.weight.options());
  const at::Tensor ids = tokens.view({all}).narrow(0, is_shared ? 0 : first, x.size(0));
  kernels::functions_of(x).take_rows(ids, begin_, tokens_.weight, x);
  if (is_shared) x = region_.summed(std::move(x), "tensor.forward");
  if (positions_.defined()) add_positions(x, first, sequence, call);
  kernels::drop_in_place(dropout(tokens, stack, call), x);
  return x.view({batch, sequence / region_.parts(), h});
}

// Calls body(n, position, rows) for the runs of positions that follow each other, of the tokens
// [first, first + count) of samples of `sequence` each: a sample, or a document of one, counts from
// 0. n counts from `first`.
template <typename Body>
void for_each_run(int64_t first, int64_t count, int64_t sequence, const kernels::CallContext& call,
                  const Body& body) {
  const int64_t* const starts = call.document_starts_on_host != nullptr
                                    ? call.document_starts_on_host->const_data_ptr<int64_t>()
                                    : nullptr;
  for (int64_t n = 0, rows = 0; n < count; n += rows) {
    const int64_t token = first + n, place = token % sequence;
    const int64_t start = starts != nullptr ? starts[token] : 0;
    rows = std::min(sequence - place, count - n);
    if (starts != nullptr) {
      rows = std::upper_bound(starts + token, starts + token + rows, start) - (starts + token);
    }
    body(n, place - start, rows);
  }
}

// x of this rank's tokens, the first of which is `first`.
void Embedding::add_positions(const at::Tensor& x, int64_t first, int64_t sequence,
                              const kernels::CallContext& call) const {
  SMP_CHECK(sequence <= positions_.weight.size(0));
  for_each_run(first, x.size(0), sequence, call, [&](int64_t n, int64_t position, int64_t rows) {
    kernels::functions_of(x).add_residual(positions_.weight.narrow(0, position, rows), {},
                                          x.narrow(0, n, rows), {});
  });
}

std::vector<at::Tensor> Embedding::forward(const std::vector<at::Tensor>& inputs,
                                           const kernels::CallContext& call, Saved* saved) {
  const at::Tensor& tokens = inputs.at(0);
  if (saved != nullptr) *saved = {tokens};
  if (!is_of_two_) return {embed(tokens, 0, call)};
  return {embed(tokens.select(0, 0), 0, call), encoder_table_.weight.clone(),
          embed(tokens.select(0, 1), 1, call), decoder_table_.weight.clone()};
}

// Every rank adds all positions.
void Embedding::add_gradient(const at::Tensor& tokens, const at::Tensor& gradient, int64_t stack,
                             const kernels::CallContext& call) const {
  const int64_t batch = tokens.size(0), sequence = tokens.size(1), h = tokens_.weight.size(1);
  const at::Tensor given = gradient.contiguous().view({-1, h});
  const at::Tensor dx =
      region_.gathered(kernels::dropped(dropout(tokens, stack, call), given), "tensor.backward");
  const kernels::DeviceFunctions& functions = kernels::functions_of(dx);
  functions.add_rows(tokens.view({batch * sequence}), begin_, dx, tokens_.gradient);
  if (!positions_.defined()) return;
  for_each_run(0, batch * sequence, sequence, call, [&](int64_t n, int64_t position, int64_t rows) {
    functions.accumulate(dx.narrow(0, n, rows), positions_.gradient.narrow(0, position, rows));
  });
}

void add_table_gradient(const kernels::Parameter& table, const at::Tensor& gradient) {
  kernels::functions_of(gradient).accumulate(gradient, table.gradient);
}

// The backward only adds rows, so there is nothing to defer.
std::vector<at::Tensor> Embedding::backward(Saved saved, std::vector<at::Tensor> gradients,
                                            const kernels::CallContext& call,
                                            DeferredWeightGradients* /*deferred*/) {
  const at::Tensor& tokens = saved.at(0);
  if (!is_of_two_) {
    add_gradient(tokens, gradients.at(0), 0, call);
    return {at::Tensor()};
  }
  add_gradient(tokens.select(0, 0), gradients.at(0), 0, call);
  add_table_gradient(encoder_table_, gradients.at(1));
  add_gradient(tokens.select(0, 1), gradients.at(2), 1, call);
  add_table_gradient(decoder_table_, gradients.at(3));
  return {at::Tensor()};
}

}  // namespace

std::unique_ptr<Layer> make_embedding(const ModelSpec& model, const ParameterViews& parameters,
                                      const kernels::TensorParallel& group) {
  return std::make_unique<Embedding>(model, parameters,
                                     kernels::TensorRegion(group, group.kinds.embedding));
}

}  // namespace smp::layers
