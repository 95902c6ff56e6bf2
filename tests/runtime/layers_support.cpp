#include "layers_support.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/model/operators.h"
#include "worst.h"

namespace smp::test {

namespace {

std::vector<model::BatchField> fields_read(const ModelSpec& model) {
  std::vector<model::BatchField> fields;
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    if (layer.reads && std::ranges::find(fields, *layer.reads) == fields.end()) {
      fields.push_back(*layer.reads);
    }
  }
  return fields;
}

}  // namespace

NamedTensors arbitrary_weights(const ModelSpec& model, at::ScalarType type) {
  NamedTensors weights;
  std::mt19937_64 engine(7);
  const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53 * 2 - 1; };
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    for (const model::ParameterSpec& spec : model::parameters_of(model, layer)) {
      std::vector<int64_t> sizes{spec.rows};
      if (!spec.is_vector) sizes.push_back(spec.cols);
      at::Tensor weight = ledger::empty_tensor(sizes, at::kDouble);
      const double base = spec.init == model::Init::kOnes ? 1.0 : 0.0;
      for (int64_t i = 0; i < weight.numel(); ++i) {
        weight.data_ptr<double>()[i] = base + 0.4 * uniform();
      }
      // Where scores are not scaled, queries are.
      if (model::score_scale(model) == 1 && spec.name.ends_with("attention.q.weight")) {
        weight.div_(std::sqrt(static_cast<double>(model.head_dim)));
      }
      weights[spec.name] = weight.to(type);
    }
  }
  return weights;
}

std::vector<at::Tensor> arbitrary_batch(const ModelSpec& model, int64_t batch, int64_t sequence) {
  std::mt19937_64 engine(11);
  std::vector<at::Tensor> tensors;
  for (const model::BatchField field : fields_read(model)) {
    const model::LayerCall call{.micro_batch = batch, .sequence_length = sequence};
    if (field == model::BatchField::kImages) {
      at::Tensor images =
          ledger::empty_tensor(model::field_of(model, field, call).shape, at::kDouble);
      for (int64_t i = 0; i < images.numel(); ++i) {
        images.data_ptr<double>()[i] = std::sin(1.7 * static_cast<double>(i * i % 97) + 0.3);
      }
      tensors.push_back(images);
      continue;
    }
    at::Tensor ids = ledger::empty_tensor(model::field_of(model, field, call).shape, at::kLong);
    for (int64_t n = 0; n < ids.numel(); ++n) {
      ids.data_ptr<int64_t>()[n] =
          static_cast<int64_t>(engine() % static_cast<uint64_t>(model.vocab_size));
    }
    tensors.push_back(ids);
  }
  return tensors;
}

at::Tensor box_of(const ModelSpec& model, const model::ParameterSpec& spec, const at::Tensor& full,
                  int64_t degree, int64_t rank) {
  const model::Box box = model::tensor_box(model, spec, degree, rank);
  at::Tensor part = full.narrow(0, box.row_begin, box.rows());
  if (!spec.is_vector) part = part.narrow(1, box.col_begin, box.cols());
  return part;
}

ModelOnRank::ModelOnRank(const ModelSpec& model, const NamedTensors& weights,
                         comm::Communicator* communicator, bool sequence_parallel,
                         const TensorKinds& kinds, const Fusions& fusions)
    : model_(model), further_tokens_(model::is_list(model) ? 0 : model.num_mtp_layers) {
  kernels::TensorParallel group;
  if (communicator != nullptr && communicator->size() > 1) {
    group = {communicator, communicator->size(), communicator->rank(), sequence_parallel, kinds};
  }
  const auto programs = layers::make_program_cache(model, fusions);
  at::Tensor token_weight, token_gradient;
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    const std::vector<model::ParameterSpec> specs = model::parameters_of(model, layer, kinds);
    std::vector<at::Tensor> boxes;
    int64_t elements = 0;
    for (const model::ParameterSpec& spec : specs) {
      boxes.push_back(box_of(model, spec, weights.at(spec.name), group.degree, group.rank));
      elements += boxes.back().numel();
    }
    const at::Tensor flat = ledger::empty_tensor({elements}, weights.begin()->second.options());
    const at::Tensor flat_gradient =
        ledger::zero_tensor_like(flat.element_size() == 2 ? flat.to(at::kFloat) : flat);
    layers::LayerParameters parameters;
    int64_t offset = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      const at::Tensor& box = boxes[i];
      const auto view = [&](const at::Tensor& buffer) {
        return buffer.narrow(0, offset, box.numel()).view(box.sizes());
      };
      view(flat).copy_(box);
      parameters.weights.push_back(view(flat));
      parameters.gradients.push_back(view(flat_gradient));
      weights_[specs[i].name] = view(flat);
      gradients_[specs[i].name] = view(flat_gradient);
      offset += box.numel();
    }
    if (layer.kind == model::LayerKind::kEmbedding) {
      token_weight = parameters.weights.front();
      token_gradient = parameters.gradients.front();
    }
    if (model::reuses_embedding(model, layer)) {
      parameters.weights.push_back(token_weight);
      parameters.gradients.push_back(token_gradient);
    }
    layers_.push_back(layers::make_layer(layer, std::move(parameters), group, programs));
  }
}

double ModelOnRank::run(const std::vector<at::Tensor>& batch, bool backward, double scale,
                        layers::DeferredWeightGradients* deferred) {
  std::vector<layers::Saved> saved(layers_.size());
  const std::vector<model::BatchField> fields = fields_read(model_);
  const std::vector<model::LayerSpec> specs = model::layers_of(model_);
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (specs[i].reads) {
      tensors.push_back(batch.at(
          static_cast<size_t>(std::ranges::find(fields, *specs[i].reads) - fields.begin())));
    }
    tensors = layers_[i]->forward(tensors, context_, backward ? &saved[i] : nullptr);
  }
  double loss = tensors.at(0).item().toDouble();
  for (int64_t depth = 1; depth <= further_tokens_; ++depth) {
    loss += model_.mtp_loss_factor / static_cast<double>(further_tokens_) *
            tensors.at(static_cast<size_t>(depth)).item().toDouble();
  }
  if (!backward) return loss;
  tensors = {ledger::zero_tensor_like(tensors.at(0)).fill_(scale)};
  for (size_t i = layers_.size(); i-- > 0;) {
    tensors = layers_[i]->backward(std::move(saved[i]), std::move(tensors), context_, deferred);
    if (specs[i].reads) tensors.pop_back();  // of the field
  }
  return loss;
}

OutcomeDifference difference(const Outcome& outcome, const Outcome& expected) {
  OutcomeDifference found{std::abs(outcome.loss / expected.loss - 1), 0};
  double most = 0;
  for (const auto& [name, gradient] : expected.gradients)
    most = testing::worst_of(most, gradient.abs().max().item().toDouble());
  for (const auto& [name, gradient] : expected.gradients) {
    const at::Tensor away = outcome.gradients.at(name).sub(gradient).abs();
    found.gradients = testing::worst_of(found.gradients, away.max().item().toDouble() / most);
  }
  return found;
}

std::vector<double> square_sums(const kernels::DeviceFunctions& device, const at::Tensor& values,
                                const std::vector<kernels::FlatRange>& ranges) {
  const at::Tensor sums = ledger::full_tensor({kernels::count_square_sums(device, ranges)}, -1,
                                              values.options().dtype(at::kDouble));
  device.sum_squares(values, ranges, sums);
  const at::Tensor here = sums.to(at::kCPU);
  return kernels::sums_of_ranges(device, ranges, here.const_data_ptr<double>());
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  SMP_CHECK(a.sizes() == b.sizes());
  const double scale = b.abs().max().item().toDouble();
  const double difference = a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item().toDouble();
  return scale == 0 ? difference : difference / scale;
}

}  // namespace smp::test
