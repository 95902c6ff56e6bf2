#include "smp/runtime/flat_parameters.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <utility>

#include "smp/comm/communicator.h"
#include "smp/plan/check.h"
#include "smp/plan/plan.h"
#include "smp/runtime/layer.h"
#include "smp/runtime/memory_ledger.h"
#include "smp/runtime/weight_init.h"
#include "torch_dtype.h"

namespace smp {
namespace {

at::Tensor allocate(MemoryCategory category, int64_t elements, DType dtype,
                    Communicator* peers = nullptr) {
  const auto options = at::TensorOptions().dtype(scalar_type_of(dtype));
  if (peers == nullptr || elements == 0) {
    const CategoryScope scope(category);
    return at::empty({elements}, options);
  }
  const int64_t bytes = elements * bytes_of(dtype);
  const auto charge = std::make_shared<MemoryCharge>(category, bytes);
  const auto memory = peers->allocate_symmetric(bytes);
  return at::from_blob(
      memory.get(), {elements}, [charge, memory](void*) {}, options);
}

at::Tensor view_of(const at::Tensor& flat, int64_t offset, const PlacedParameter& parameter) {
  const at::Tensor part = flat.narrow(0, offset, parameter.box.size());
  if (parameter.spec.is_vector) return part;
  return part.view({parameter.box.rows(), parameter.box.cols()});
}

void fill(const PlacedParameter& parameter, uint64_t seed, DType dtype, const at::Tensor& out) {
  if (dtype == DType::kF32) {
    fill_parameter(parameter.spec, parameter.box, seed, out.mutable_data_ptr<float>());
  } else {
    fill_parameter(parameter.spec, parameter.box, seed, out.mutable_data_ptr<double>());
  }
}

}  // namespace

struct FlatParameters::Impl {
  RankLayout layout;
  DType dtype;
  at::Tensor weights, gradients;
  std::vector<at::Tensor> weight_views, gradient_views;
  at::Tensor tied_weight, tied_gradient;
};

FlatParameters::FlatParameters(RankLayout layout, DType dtype, Communicator* peers)
    : impl_(std::make_unique<Impl>()) {
  Impl& self = *impl_;
  self.layout = std::move(layout);
  self.dtype = dtype;
  self.weights = allocate(MemoryCategory::kWeights, self.layout.elements, dtype, peers);
  self.gradients = allocate(MemoryCategory::kGradients, self.layout.elements, dtype, peers);
  self.weights.zero_();
  self.gradients.zero_();
  for (const PlacedParameter& parameter : self.layout.parameters) {
    self.weight_views.push_back(view_of(self.weights, parameter.offset, parameter));
    self.gradient_views.push_back(view_of(self.gradients, parameter.offset, parameter));
  }
  if (self.layout.tied_copy) {
    const PlacedParameter& copy = *self.layout.tied_copy;
    const int64_t size = copy.box.size();
    self.tied_weight = view_of(allocate(MemoryCategory::kWeights, size, dtype), 0, copy);
    self.tied_gradient = view_of(allocate(MemoryCategory::kGradients, size, dtype), 0, copy);
    self.tied_gradient.zero_();
  }
}

FlatParameters::~FlatParameters() = default;

const RankLayout& FlatParameters::layout() const { return impl_->layout; }
DType FlatParameters::dtype() const { return impl_->dtype; }

void FlatParameters::initialise(uint64_t seed) {
  for (size_t i = 0; i < impl_->layout.parameters.size(); ++i) {
    fill(impl_->layout.parameters[i], seed, impl_->dtype, impl_->weight_views[i]);
  }
  if (impl_->layout.tied_copy) {
    fill(*impl_->layout.tied_copy, seed, impl_->dtype, impl_->tied_weight);
  }
}

void FlatParameters::zero_gradients() {
  impl_->gradients.zero_();
  if (impl_->tied_gradient.defined()) impl_->tied_gradient.zero_();
}

void FlatParameters::drop_gradients() {
  impl_->gradient_views.clear();
  impl_->gradients.reset();
  impl_->tied_gradient.reset();
}

const at::Tensor& FlatParameters::weights() const { return impl_->weights; }
const at::Tensor& FlatParameters::gradients() const { return impl_->gradients; }

const at::Tensor& FlatParameters::weight(int64_t index) const {
  return impl_->weight_views.at(static_cast<size_t>(index));
}

const at::Tensor& FlatParameters::gradient(int64_t index) const {
  return impl_->gradient_views.at(static_cast<size_t>(index));
}

FlatParameters::Range FlatParameters::range_of(int64_t layer) const {
  Range range;
  const auto& parameters = impl_->layout.parameters;
  while (range.first < static_cast<int64_t>(parameters.size()) &&
         parameters[static_cast<size_t>(range.first)].layer != layer) {
    ++range.first;
  }
  range.last = range.first;
  while (range.last < static_cast<int64_t>(parameters.size()) &&
         parameters[static_cast<size_t>(range.last)].layer == layer) {
    ++range.last;
  }
  return range;
}

LayerParameters FlatParameters::layer_parameters(int64_t layer) const {
  LayerParameters parameters;
  bool has_matrix = false;
  const Range range = range_of(layer);
  for (int64_t i = range.first; i < range.last; ++i) {
    parameters.weights.push_back(weight(i));
    parameters.gradients.push_back(gradient(i));
    has_matrix |= !impl_->layout.parameters[static_cast<size_t>(i)].spec.is_vector;
  }
  bool is_head = false;
  for (const LayerSpec& spec : impl_->layout.layers) {
    if (spec.index == layer) is_head = spec.kind == LayerKind::kHead;
  }
  if (is_head && !has_matrix) {
    const bool copied = impl_->layout.tied_copy.has_value();
    parameters.weights.push_back(copied ? tied_weight() : weight(0));
    parameters.gradients.push_back(copied ? tied_gradient() : gradient(0));
  }
  return parameters;
}

const at::Tensor& FlatParameters::tied_weight() const { return impl_->tied_weight; }
const at::Tensor& FlatParameters::tied_gradient() const { return impl_->tied_gradient; }

}  // namespace smp
