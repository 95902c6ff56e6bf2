#include "smp/runtime/adamw.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "adamw_kernel.h"
#include "owned_part.h"
#include "smp/plan/check.h"
#include "smp/plan/collective.h"
#include "smp/plan/plan.h"
#include "smp/runtime/flat_parameters.h"
#include "smp/runtime/memory_ledger.h"
#include "torch_dtype.h"

namespace smp {
namespace {

// Elements [begin, end) of the flat buffers.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};

// A span that is updated with one set of factors; its state starts at `state`.
struct UpdateSpan {
  Span span;
  int64_t state = 0;
  bool decays = false;
  int64_t bucket = 0;
};

Span overlap(const Span& a, const Span& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Calls body(parameter, span) for the parts of `owned` that are parameters, not padding.
template <typename Body>
void for_each_parameter(const RankLayout& layout, const Span& owned, const Body& body) {
  for (const PlacedParameter& parameter : layout.parameters) {
    const Span part = overlap({parameter.offset, parameter.offset + parameter.box.size()}, owned);
    if (part.begin < part.end) body(parameter, part);
  }
}

}  // namespace

double learning_rate_at(const OptimizerSpec& spec, int64_t steps, int64_t step) {
  if (step < spec.warmup_steps) {
    return spec.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(spec.warmup_steps);
  }
  const int64_t decaying = steps - 1 - spec.warmup_steps;
  if (decaying <= 0) return spec.learning_rate;
  const double done =
      std::min(1.0, static_cast<double>(step - spec.warmup_steps) / static_cast<double>(decaying));
  return spec.min_learning_rate + 0.5 * (1.0 + std::cos(std::numbers::pi * done)) *
                                      (spec.learning_rate - spec.min_learning_rate);
}

struct AdamW::Impl {
  OptimizerSpec spec;
  FlatParameters* parameters = nullptr;
  at::Tensor momentum, variance;
  std::vector<UpdateSpan> updates;
  std::vector<UpdateSpan> normed;
  int64_t steps_done = 0;

  void plan_bucket(int64_t index, const Degrees& degrees, int64_t state) {
    const Bucket& bucket = parameters->layout().buckets[static_cast<size_t>(index)];
    const RankLayout& layout = parameters->layout();
    const int64_t part = bucket.size() / degrees.shard;
    const int64_t begin = bucket.begin + layout.coord.shard * part;
    const Span owned{begin, begin + part};
    for_each_parameter(layout, owned, [&](const PlacedParameter& parameter, const Span& span) {
      const bool decays = parameter.spec.weight_decay;
      const bool joins = !updates.empty() && updates.back().span.end == span.begin &&
                         updates.back().bucket == index && updates.back().decays == decays &&
                         updates.back().state + (span.begin - updates.back().span.begin) ==
                             state + (span.begin - begin);
      if (joins) {
        updates.back().span.end = span.end;
      } else {
        updates.push_back({span, state + (span.begin - begin), decays, index});
      }
    });
    // The replicas hold equal gradients: each sums its own share of them.
    const int64_t share = begin + part_begin(part, degrees.replica, layout.coord.replica);
    const Span mine{share, share + part_size(part, degrees.replica, layout.coord.replica)};
    for_each_parameter(layout, mine, [&](const PlacedParameter& parameter, const Span& span) {
      if (parameter.counts) normed.push_back({span, 0, false, index});
    });
  }

  template <typename T>
  void update(const AdamWFactors& decayed, const AdamWFactors& kept) {
    T* const m = momentum.mutable_data_ptr<T>();
    T* const v = variance.mutable_data_ptr<T>();
    for (const UpdateSpan& part : updates) {
      const FlatParameters::Owned held = parameters->owned(part.bucket);
      const int64_t begin = part.span.begin - held.begin;
      T* const weights = held.weights.mutable_data_ptr<T>();
      const T* const gradients = held.gradients.const_data_ptr<T>();
      adamw_update(part.decays ? decayed : kept, part.span.end - part.span.begin, gradients + begin,
                   weights + begin, m + part.state, v + part.state);
    }
  }

  template <typename T>
  double norm_squared() const {
    double sum = 0;
    for (const UpdateSpan& part : normed) {
      const FlatParameters::Owned held = parameters->owned(part.bucket);
      sum += sum_of_squares(part.span.end - part.span.begin,
                            held.gradients.const_data_ptr<T>() + part.span.begin - held.begin);
    }
    return sum;
  }
};

AdamW::AdamW(const OptimizerSpec& spec, const Degrees& degrees, FlatParameters& parameters)
    : impl_(std::make_unique<Impl>()) {
  const RankLayout& layout = parameters.layout();
  impl_->spec = spec;
  impl_->parameters = &parameters;
  int64_t state = 0;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const Bucket& bucket = layout.buckets[b];
    SMP_CHECK_EQ(bucket.size() % degrees.shard, 0);
    impl_->plan_bucket(static_cast<int64_t>(b), degrees, state);
    state += bucket.size() / degrees.shard;
  }
  SMP_CHECK_EQ(state, layout.optimizer_elements);
  const CategoryScope scope(MemoryCategory::kOptimizer);
  const auto options = at::TensorOptions().dtype(scalar_type_of(parameters.dtype()));
  impl_->momentum = at::zeros({state}, options);
  impl_->variance = at::zeros({state}, options);
}

AdamW::~AdamW() = default;

double AdamW::local_norm_squared() const {
  return impl_->parameters->dtype() == DType::kF32 ? impl_->norm_squared<float>()
                                                   : impl_->norm_squared<double>();
}

std::vector<AdamW::State> AdamW::states() const {
  return {{"momentum", &impl_->momentum}, {"variance", &impl_->variance}};
}

int64_t AdamW::steps_done() const { return impl_->steps_done; }
void AdamW::set_steps_done(int64_t steps) { impl_->steps_done = steps; }

void AdamW::step(double learning_rate, double gradient_scale) {
  const OptimizerSpec& spec = impl_->spec;
  const auto t = static_cast<double>(++impl_->steps_done);
  AdamWFactors kept;
  kept.scale = gradient_scale;
  kept.beta1 = spec.beta1;
  kept.beta2 = spec.beta2;
  kept.epsilon = spec.epsilon;
  kept.rate = learning_rate / (1.0 - std::pow(spec.beta1, t));
  kept.inverse_root = 1.0 / std::sqrt(1.0 - std::pow(spec.beta2, t));
  AdamWFactors decayed = kept;
  decayed.keep = 1.0 - learning_rate * spec.weight_decay;
  if (impl_->parameters->dtype() == DType::kF32) {
    impl_->update<float>(decayed, kept);
  } else {
    impl_->update<double>(decayed, kept);
  }
}

}  // namespace smp
