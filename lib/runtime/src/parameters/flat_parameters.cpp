#include "smp/runtime/parameters/flat_parameters.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "gpu/gpu.h"
#include "ledger/tensor_factories.h"
#include "ledger/torch_dtype.h"
#include "parameters/owned_part.h"
#include "smp/comm/communicator.h"
#include "smp/plan/base/check.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/layers/layer.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/parameters/weight_init.h"

namespace smp::parameters {
namespace {

at::Tensor allocate(const char* what, MemoryCategory category, int64_t elements, DType dtype,
                    at::Device device, comm::Communicator* peers = nullptr) {
  const ledger::ItemScope item(what);
  const auto options = at::TensorOptions().dtype(ledger::scalar_type_of(dtype)).device(device);
  if (peers == nullptr || elements == 0) {
    const ledger::CategoryScope scope(category);
    return ledger::empty_tensor({elements}, options);
  }
  const int64_t bytes = elements * bytes_of(dtype);
  const auto charge = std::make_shared<ledger::MemoryCharge>(category, bytes);
  const auto memory = peers->allocate_symmetric(bytes);
  return at::from_blob(
      memory.get(), {elements}, [charge, memory](void*) {}, options);
}

at::Tensor view_of(const at::Tensor& flat, int64_t offset,
                   const layout::PlacedParameter& parameter) {
  const at::Tensor part = flat.narrow(0, offset, parameter.box.size());
  if (parameter.spec.is_vector) return part;
  return part.view({parameter.box.rows(), parameter.box.cols()});
}

// Elements that are drawn at a time for 16-bit weights and for GPUs.
constexpr int64_t kDrawnAtOnce = 64 << 10;

// Elements [begin, end) of the parameter's box, in its row-major order. 16-bit weights are rounded
// from fp32 ones.
void fill(const layout::PlacedParameter& parameter, uint64_t seed, int64_t begin, int64_t end,
          const at::Tensor& out) {
  const model::ParameterSpec& spec = parameter.spec;
  const model::Box& box = parameter.box;
  const auto draw = [&](int64_t first, int64_t last, const at::Tensor& to) {
    if (to.scalar_type() == at::kDouble) {
      fill_parameter(spec, box, seed, first, last, to.mutable_data_ptr<double>());
    } else {
      fill_parameter(spec, box, seed, first, last, to.mutable_data_ptr<float>());
    }
  };
  const bool is_narrow = out.element_size() == 2;
  if (!is_narrow && out.is_cpu()) return draw(begin, end, out);
  const ledger::CategoryScope scope(MemoryCategory::kWorkspace);
  const at::Tensor drawn = ledger::empty_tensor({std::min(kDrawnAtOnce, end - begin)},
                                                is_narrow ? at::kFloat : out.scalar_type());
  for (int64_t at = begin; at < end; at += drawn.numel()) {
    const int64_t count = std::min(drawn.numel(), end - at);
    draw(at, at + count, drawn);
    out.narrow(0, at - begin, count).copy_(drawn.narrow(0, 0, count));
  }
}

}  // namespace

// Names of each side's memory in reports.
struct SideNames {
  const char* flat;
  const char* buffer;
};
constexpr SideNames kWeightNames{"weights", "gathered weights"};
constexpr SideNames kGradientNames{"gradients", "gradients before their reduction"};

// Weights or gradients: the flat buffer, and the shared buffers for whole buckets.
struct FlatSide {
  at::Tensor flat;
  std::vector<at::Tensor> buffers;  // empty: flat is whole
  std::vector<at::Tensor> views;    // of the parameters
  bool is_sharded() const { return !buffers.empty(); }
};

struct FlatParameters::Impl {
  layout::RankLayout layout;
  DType dtype;
  DType gradient_dtype;
  at::Device device = at::kCPU;
  ledger::MemoryLedger* host = nullptr;  // of sharded weights; null = the device
  FlatSide weights, gradients;
  at::Tensor tied_weight, tied_gradient;

  // Allocates the flat buffer and the shared ones, and makes the views. `elements`: sizes of the
  // shared ones.
  void allocate_side(FlatSide& side, const SideNames& names, MemoryCategory category, DType type,
                     const std::vector<int64_t>& elements, int32_t layout::Bucket::*buffer,
                     comm::Communicator* peers) {
    const int64_t flat = elements.empty() ? layout.elements : layout.optimizer_elements;
    if (host != nullptr && category == MemoryCategory::kWeights) {
      const ledger::LedgerScope scope(*host);
      side.flat = allocate(names.flat, category, flat, type, at::kCPU);
    } else {
      side.flat = allocate(names.flat, category, flat, type, device, peers);
    }
    side.flat.zero_();
    for (const int64_t size : elements) {
      side.buffers.push_back(allocate(names.buffer, category, size, type, device, peers));
      side.buffers.back().zero_();
    }
    for (const layout::PlacedParameter& parameter : layout.parameters) {
      const layout::Bucket& bucket = bucket_of(parameter);
      const at::Tensor whole = whole_of(side, bucket, bucket.*buffer);
      side.views.push_back(view_of(whole, parameter.offset - bucket.begin, parameter));
    }
  }

  const layout::Bucket& bucket_of(const layout::PlacedParameter& parameter) const {
    for (const layout::Bucket& bucket : layout.buckets) {
      if (parameter.offset >= bucket.begin && parameter.offset < bucket.end) return bucket;
    }
    check_failed(__FILE__, __LINE__, "a parameter is in no bucket");
  }

  // Of a sharded side's buckets those of which a rank has all lie in the flat buffer as well.
  at::Tensor whole_of(const FlatSide& side, const layout::Bucket& bucket, int32_t buffer) const {
    if (!side.is_sharded()) return side.flat.narrow(0, bucket.begin, bucket.size());
    if (buffer < 0) return side.flat.narrow(0, bucket.part_begin, bucket.size());
    return side.buffers.at(static_cast<size_t>(buffer)).narrow(0, 0, bucket.size());
  }

  at::Tensor part_of(const FlatSide& side, const layout::Bucket& bucket) const {
    const layout::StateShare& share = layout.share_of(bucket);
    const int64_t size = bucket.size() / share.shards;
    const int64_t begin = side.is_sharded() ? bucket.part_begin : bucket.begin + share.shard * size;
    return side.flat.narrow(0, begin, size);
  }
};

FlatParameters::FlatParameters(layout::RankLayout layout, DType dtype, comm::Communicator* peers,
                               ledger::MemoryLedger* host, const gpu::Gpu* gpu)
    : impl_(std::make_unique<Impl>()) {
  Impl& self = *impl_;
  self.device = gpu::device_of(gpu);
  if (gpu != nullptr) peers = nullptr;
  self.layout = std::move(layout);
  SMP_CHECK(host == nullptr || self.layout.shards_weights());
  self.host = host;
  self.dtype = dtype;
  self.gradient_dtype = wide(dtype);
  self.allocate_side(self.weights, kWeightNames, MemoryCategory::kWeights, dtype,
                     self.layout.weight_buffers, &layout::Bucket::weight_buffer, peers);
  self.allocate_side(self.gradients, kGradientNames, MemoryCategory::kGradients,
                     self.gradient_dtype, self.layout.gradient_buffers,
                     &layout::Bucket::gradient_buffer, peers);
  if (self.layout.tied_copy) {
    const layout::PlacedParameter& copy = *self.layout.tied_copy;
    const int64_t size = copy.box.size();
    self.tied_weight =
        view_of(allocate("tied embedding copy", MemoryCategory::kWeights, size, dtype, self.device),
                0, copy);
    self.tied_gradient = view_of(allocate("tied embedding gradient", MemoryCategory::kGradients,
                                          size, self.gradient_dtype, self.device),
                                 0, copy);
    self.tied_gradient.zero_();
  } else if (self.layout.tied_gradient_apart) {
    const layout::PlacedParameter& table = self.layout.parameters.front();
    self.tied_gradient = view_of(allocate("tied embedding gradient", MemoryCategory::kGradients,
                                          table.box.size(), self.gradient_dtype, self.device),
                                 0, table);
    self.tied_gradient.zero_();
  }
}

FlatParameters::~FlatParameters() = default;

const layout::RankLayout& FlatParameters::layout() const { return impl_->layout; }
DType FlatParameters::dtype() const { return impl_->dtype; }
DType FlatParameters::gradient_dtype() const { return impl_->gradient_dtype; }
bool FlatParameters::weights_on_host() const { return impl_->host != nullptr; }

// Each rank draws the weights that it holds: all of them, or its own part of sharded ones.
void FlatParameters::initialise(uint64_t seed) {
  for (size_t b = 0; b < impl_->layout.buckets.size(); ++b) {
    const layout::Bucket& bucket = impl_->layout.buckets[b];
    const OwnedPart part = owned(static_cast<int64_t>(b));
    const bool sharded = impl_->weights.is_sharded();
    const int64_t begin = sharded ? part.begin : bucket.begin;
    const int64_t end = sharded ? part.end : bucket.end;
    const at::Tensor target =
        sharded ? part.weights : impl_->weights.flat.narrow(0, begin, end - begin);
    for (const layout::PlacedParameter& parameter : impl_->layout.parameters) {
      const int64_t first = std::max(begin, parameter.offset);
      const int64_t last = std::min(end, parameter.offset + parameter.box.size());
      if (first >= last) continue;
      fill(parameter, seed, first - parameter.offset, last - parameter.offset,
           target.narrow(0, first - begin, last - first));
    }
  }
  if (impl_->layout.tied_copy) {
    const int64_t size = impl_->layout.tied_copy->box.size();
    fill(*impl_->layout.tied_copy, seed, 0, size, impl_->tied_weight.view({size}));
  }
}

// With sharded gradients nothing needs zeroing but what is whole all the same: each reduction
// leaves the shared buffer zeroed, and the step's first reduction overwrites this rank's part.
void FlatParameters::zero_gradients() {
  if (!impl_->gradients.is_sharded()) impl_->gradients.flat.zero_();
  for (const layout::Bucket& bucket : impl_->layout.buckets) {
    const bool is_whole = impl_->gradients.is_sharded() && bucket.gradient_buffer < 0;
    if (is_whole) impl_->part_of(impl_->gradients, bucket).zero_();
  }
  if (impl_->tied_gradient.defined()) impl_->tied_gradient.zero_();
}

void FlatParameters::drop_gradients() {
  impl_->gradients = {};
  impl_->tied_gradient.reset();
}

const at::Tensor& FlatParameters::weights() const { return impl_->weights.flat; }
const at::Tensor& FlatParameters::gradients() const { return impl_->gradients.flat; }

OwnedPart FlatParameters::owned(int64_t bucket) const {
  const layout::Bucket& whole = impl_->layout.buckets.at(static_cast<size_t>(bucket));
  const layout::StateShare& share = impl_->layout.share_of(whole);
  const int64_t size = whole.size() / share.shards;
  OwnedPart owned;
  owned.begin = whole.begin + share.shard * size;
  owned.end = owned.begin + size;
  owned.weights = impl_->part_of(impl_->weights, whole);
  if (impl_->gradients.flat.defined()) owned.gradients = impl_->part_of(impl_->gradients, whole);
  return owned;
}

at::Tensor FlatParameters::whole_weights(int64_t bucket) const {
  const layout::Bucket& whole = impl_->layout.buckets.at(static_cast<size_t>(bucket));
  return impl_->whole_of(impl_->weights, whole, whole.weight_buffer);
}

at::Tensor FlatParameters::whole_gradients(int64_t bucket) const {
  const layout::Bucket& whole = impl_->layout.buckets.at(static_cast<size_t>(bucket));
  return impl_->whole_of(impl_->gradients, whole, whole.gradient_buffer);
}

const at::Tensor& FlatParameters::weight(int64_t index) const {
  return impl_->weights.views.at(static_cast<size_t>(index));
}

const at::Tensor& FlatParameters::gradient(int64_t index) const {
  return impl_->gradients.views.at(static_cast<size_t>(index));
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

layers::LayerParameters FlatParameters::layer_parameters(int64_t layer) const {
  layers::LayerParameters parameters;
  bool has_matrix = false;
  const Range range = range_of(layer);
  for (int64_t i = range.first; i < range.last; ++i) {
    parameters.weights.push_back(weight(i));
    parameters.gradients.push_back(gradient(i));
    has_matrix |= !impl_->layout.parameters[static_cast<size_t>(i)].spec.is_vector;
  }
  const auto spec = std::ranges::find(impl_->layout.layers, layer, &model::LayerSpec::index);
  const bool is_tied_head = spec->kind == model::LayerKind::kHead && !has_matrix;
  if (is_tied_head || spec->kind == model::LayerKind::kMtpBlock) {
    const bool copied = impl_->layout.tied_copy.has_value();
    parameters.weights.push_back(copied ? tied_weight() : weight(0));
    parameters.gradients.push_back(tied_gradient().defined() ? tied_gradient() : gradient(0));
  }
  return parameters;
}

const at::Tensor& FlatParameters::tied_weight() const { return impl_->tied_weight; }
const at::Tensor& FlatParameters::tied_gradient() const { return impl_->tied_gradient; }

void FlatParameters::add_tied_gradient() { gradient(0).add_(tied_gradient()); }

}  // namespace smp::parameters
