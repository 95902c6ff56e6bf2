#include "smp/runtime/optim/optimizer.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/device_functions.h"
#include "kernels/update_range.h"
#include "ledger/tensor_factories.h"
#include "ledger/torch_dtype.h"
#include "optim/host_update.h"
#include "optim/update_rule.h"
#include "parameters/owned_part.h"
#include "smp/plan/base/check.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/parameters/flat_parameters.h"

namespace smp::optim {
namespace {

// Elements [begin, end) of the flat order.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};

// A span with one set of factors; its state starts at `state`.
struct UpdateSpan {
  Span span;
  int64_t state = 0;
  bool decays = false;
  bool follows_load = false;
};

// The part of a bucket that this rank owns; `begin` is its first element.
struct BucketPart {
  int64_t bucket = 0;
  int64_t begin = 0;
  std::vector<UpdateSpan> updates;        // owned ranges, joined if one update can do several
  std::vector<kernels::FlatRange> norms;  // the ranges whose squares this rank sums, with layers
  std::vector<int64_t> norm_layers;
  int64_t squares_begin = 0, squares_end = 0;  // in Impl::squares; the last is the sum of all
};

void add_update(std::vector<UpdateSpan>& updates, const UpdateSpan& next) {
  if (!updates.empty()) {
    UpdateSpan& last = updates.back();
    const bool follows = last.span.end == next.span.begin &&
                         last.state + (next.span.begin - last.span.begin) == next.state;
    if (follows && last.decays == next.decays && last.follows_load == next.follows_load) {
      last.span.end = next.span.end;
      return;
    }
  }
  updates.push_back(next);
}

}  // namespace

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerSpec& spec) {
  switch (spec.kind) {
    case OptimizerKind::kAdamW: return make_adamw(spec);
    case OptimizerKind::kSgd: return make_sgd(spec);
  }
  check_failed(__FILE__, __LINE__, "unknown optimizer");
}

struct Optimizer::Impl {
  parameters::FlatParameters* parameters = nullptr;
  std::unique_ptr<UpdateRule> rule, load_rule;
  std::vector<const char*> names;  // of `states`
  std::vector<at::Tensor> states;
  at::Tensor master;  // undefined if weights are fp32 or fp64
  std::optional<HostUpdate> on_host;
  std::vector<OwnedRange> owned;
  std::vector<BucketPart> parts;
  at::Tensor squares;  // sum_squares() of all parts, one after the other, where the gradients are
  int64_t steps_done = 0;

  void add_bucket(int64_t bucket, int64_t state);

  void make_squares();

  template <typename T>
  void update(const BucketPart& part, const double* only_if_finite);
};

void Optimizer::Impl::add_bucket(int64_t bucket, int64_t state) {
  const layout::RankLayout& layout = parameters->layout();
  const parameters::OwnedPart held = parameters->owned(bucket);
  const layout::StateShare& share = layout.share_of(layout.buckets.at(static_cast<size_t>(bucket)));
  BucketPart part;
  part.bucket = bucket;
  part.begin = held.begin;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const layout::PlacedParameter& parameter = layout.parameters[i];
    const Span span{std::max(parameter.offset, held.begin),
                    std::min(parameter.offset + parameter.box.size(), held.end)};
    if (span.begin >= span.end) continue;
    const int64_t at = state + (span.begin - held.begin);
    owned.push_back({static_cast<int64_t>(i), span.begin, span.end, at});
    add_update(part.updates, {span, at, parameter.spec.weight_decay, parameter.spec.follows_load});
    if (!parameter.counts || parameter.spec.follows_load) continue;
    // The replicas hold equal gradients, and each sums its share of them. The shares are parts of
    // each parameter, so they do not depend on the stage's other layers.
    const int64_t size = span.end - span.begin;
    const int64_t begin = span.begin + mesh::part_begin(size, share.replicas, share.replica);
    part.norms.push_back(
        {begin - held.begin, mesh::part_size(size, share.replicas, share.replica)});
    part.norm_layers.push_back(parameter.layer);
  }
  parts.push_back(std::move(part));
}

void Optimizer::Impl::make_squares() {
  const at::Tensor& gradients = parameters->gradients();
  int64_t end = 0;
  for (BucketPart& part : parts) {
    part.squares_begin = end;
    part.squares_end = end +=
        kernels::count_square_sums(kernels::functions_of(gradients), part.norms);
  }
  const ledger::CategoryScope scope(MemoryCategory::kWorkspace);
  const ledger::ItemScope item("squared gradients");
  squares = ledger::empty_tensor({end}, gradients.options().dtype(at::kDouble));
}

template <typename T>
void Optimizer::Impl::update(const BucketPart& part, const double* only_if_finite) {
  const parameters::OwnedPart held = parameters->owned(part.bucket);
  const T* const gradients = held.gradients.const_data_ptr<T>();
  void* const weights = held.weights.mutable_data_ptr();
  for (const UpdateSpan& one : part.updates) {
    const int64_t begin = one.span.begin - part.begin;
    kernels::UpdateRange<T> range;
    range.count = one.span.end - one.span.begin;
    range.decays = one.decays;
    range.gradients = gradients + begin;
    range.only_if_finite = only_if_finite;
    for (size_t i = 0; i < states.size(); ++i) {
      range.states[i] = states[i].mutable_data_ptr<T>() + one.state;
    }
    if (master.defined()) {
      range.weights = master.mutable_data_ptr<T>() + one.state;
      range.copy = static_cast<uint16_t*>(weights) + begin;
      range.copy_dtype = parameters->dtype();
    } else {
      range.weights = static_cast<T*>(weights) + begin;
    }
    const UpdateRule& one_rule = one.follows_load ? *load_rule : *rule;
    if (on_host) {
      on_host->run(one_rule, range, held.weights.narrow(0, begin, range.count),
                   held.gradients.narrow(0, begin, range.count));
    } else {
      one_rule.update(kernels::functions_of(held.gradients), range);
    }
  }
}

Optimizer::Optimizer(const OptimizerSpec& spec, parameters::FlatParameters& parameters,
                     ledger::MemoryLedger* host, double correction_rate)
    : impl_(std::make_unique<Impl>()) {
  const layout::RankLayout& layout = parameters.layout();
  impl_->parameters = &parameters;
  impl_->rule = make_update_rule(spec);
  impl_->load_rule = make_load_rule(correction_rate);
  impl_->names = impl_->rule->states();
  int64_t elements = 0;
  for (size_t i = 0; i < layout.buckets.size(); ++i) {
    const int64_t shards = layout.share_of(layout.buckets[i]).shards;
    SMP_CHECK_EQ(layout.buckets[i].size() % shards, 0);
    impl_->add_bucket(static_cast<int64_t>(i), elements);
    elements += layout.buckets[i].size() / shards;
  }
  SMP_CHECK_EQ(elements, layout.optimizer_elements);
  impl_->make_squares();
  const ledger::CategoryScope scope(MemoryCategory::kOptimizer);
  std::optional<ledger::LedgerScope> pool;
  if (host != nullptr) pool.emplace(*host);
  const auto options =
      at::TensorOptions()
          .dtype(ledger::scalar_type_of(parameters.gradient_dtype()))
          .device(host != nullptr ? at::Device(at::kCPU) : parameters.gradients().device());
  for (size_t i = 0; i < impl_->names.size(); ++i) {
    const ledger::ItemScope item(impl_->names[i]);
    impl_->states.push_back(ledger::zero_tensor({elements}, options));
  }
  if (parameters.dtype() != parameters.gradient_dtype()) {
    const ledger::ItemScope item("master weights");
    impl_->master = ledger::zero_tensor({elements}, options);
    adopt_weights();
  }
  if (host != nullptr) impl_->on_host.emplace(parameters, *host);
}

Optimizer::~Optimizer() = default;

void Optimizer::start_norms(int64_t bucket) {
  const BucketPart& part = impl_->parts.at(static_cast<size_t>(bucket));
  const at::Tensor gradients = impl_->parameters->owned(bucket).gradients;
  kernels::functions_of(gradients).sum_squares(
      gradients, part.norms,
      impl_->squares.narrow(0, part.squares_begin, part.squares_end - part.squares_begin));
}

void Optimizer::add_norms_squared(std::vector<double>& by_layer) {
  const at::Tensor here = impl_->squares.to(at::kCPU);
  const kernels::DeviceFunctions& functions = kernels::functions_of(impl_->squares);
  for (const BucketPart& part : impl_->parts) {
    const std::vector<double> sums = kernels::sums_of_ranges(
        functions, part.norms, here.const_data_ptr<double>() + part.squares_begin);
    for (size_t i = 0; i < part.norms.size(); ++i) {
      by_layer.at(static_cast<size_t>(part.norm_layers[i])) += sums[i];
    }
  }
}

void Optimizer::begin(double learning_rate, double gradient_scale) {
  impl_->rule->begin(++impl_->steps_done, learning_rate, gradient_scale);
}

void Optimizer::update(int64_t bucket, bool only_if_finite) {
  const BucketPart& part = impl_->parts.at(static_cast<size_t>(bucket));
  const at::Tensor sum = impl_->squares.narrow(0, part.squares_end - 1, 1);
  const double* guard = only_if_finite ? sum.const_data_ptr<double>() : nullptr;
  if (guard != nullptr && impl_->on_host) {
    if (!std::isfinite(sum.item<double>())) return;
    guard = nullptr;
  }
  if (impl_->parameters->gradient_dtype() == DType::kF32) {
    impl_->update<float>(part, guard);
  } else {
    impl_->update<double>(part, guard);
  }
}

void Optimizer::step(double learning_rate, double gradient_scale) {
  begin(learning_rate, gradient_scale);
  for (const BucketPart& part : impl_->parts) update(part.bucket);
}

void Optimizer::adopt_weights() {
  if (!impl_->master.defined()) return;
  for (const BucketPart& part : impl_->parts) {
    const at::Tensor weights = impl_->parameters->owned(part.bucket).weights;
    for (const UpdateSpan& one : part.updates) {
      const int64_t count = one.span.end - one.span.begin;
      impl_->master.narrow(0, one.state, count)
          .copy_(weights.narrow(0, one.span.begin - part.begin, count));
    }
  }
}

std::vector<Optimizer::State> Optimizer::states() const {
  std::vector<State> all;
  for (size_t i = 0; i < impl_->names.size(); ++i) {
    all.push_back({impl_->names[i], &impl_->states[i]});
  }
  if (impl_->master.defined()) all.push_back({"master", &impl_->master});
  return all;
}

int64_t Optimizer::steps_done() const { return impl_->steps_done; }
void Optimizer::set_steps_done(int64_t steps) { impl_->steps_done = steps; }
const std::vector<Optimizer::OwnedRange>& Optimizer::owned() const { return impl_->owned; }

}  // namespace smp::optim
