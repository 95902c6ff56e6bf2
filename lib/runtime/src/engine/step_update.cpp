#include "engine/step_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/layout/traffic.h"
#include "smp/plan/schedule/schedule.h"

namespace smp::engine {

StepUpdate::StepUpdate(const Plan& plan, parallel::ParallelModel& model)
    : plan_(plan),
      model_(model),
      layers_(model::layers_of(plan.job.model)),
      early_(!layout::why_updates_wait(plan.job.training)),
      counts_vary_(layout::counts_vary(plan.job.training)),
      sums_(static_cast<size_t>(layout::step_sums(plan.job))),
      has_norms_(model.parameters->layout().buckets.size()) {}

void StepUpdate::begin(int64_t step, double learning_rate) {
  step_ = step;
  learning_rate_ = learning_rate;
  has_begun_ = skips_ = false;
  std::fill(sums_.begin(), sums_.end(), 0.0);
  has_norms_.assign(has_norms_.size(), false);
  for (const auto& layer : model_.layers) layer->take_router_load();  // of a step that has failed
}

void StepUpdate::start_norms(int64_t bucket) {
  if (has_norms_.at(static_cast<size_t>(bucket))) return;
  has_norms_[static_cast<size_t>(bucket)] = true;
  model_.optimizer->start_norms(bucket);
  const int32_t experts = experts_of(bucket);
  if (experts >= 0) start_norms(experts);
}

int32_t StepUpdate::experts_of(int64_t bucket) const {
  return model_.parameters->layout().buckets.at(static_cast<size_t>(bucket)).experts;
}

void StepUpdate::update(int64_t bucket) {
  if (early_) {
    if (!std::exchange(has_begun_, true)) model_.optimizer->begin(learning_rate_, 1);
    start_norms(bucket);
    model_.optimizer->update(bucket, /*only_if_finite=*/true);
  } else if (!skips_) {
    model_.optimizer->update(bucket);
  }
  const int32_t experts = experts_of(bucket);
  if (experts >= 0) update(experts);
}

// One all-reduce a step carries norms, loss and counts: it tells every rank how to clip, what to
// print and whether to stop. Each gradient element and each target counts on one rank only. Norms
// are added layer by layer in the order of the model, so that the total does not depend on the
// pipeline's partition.
StepResult StepUpdate::agree(double loss, const std::vector<double>& further, int64_t counted) {
  const mesh::Coord& coord = model_.parameters->layout().coord;
  for (size_t bucket = 0; bucket < has_norms_.size(); ++bucket)
    start_norms(static_cast<int64_t>(bucket));
  model_.optimizer->add_norms_squared(sums_);
  // All ranks of a tensor group have the same loads and the same loss, so one of them contributes
  // these. Ranks without the head have a loss of 0.
  if (coord.tensor == 0) add_router_loads();
  const auto loss_sum = sums_.end() - (counts_vary_ ? 2 : 1);
  const auto further_sums = loss_sum - static_cast<std::ptrdiff_t>(further.size());
  if (coord.tensor == 0) {
    *loss_sum = loss;
    std::copy(further.begin(), further.end(), further_sums);
  }
  if (counts_vary_) sums_.back() = coord.tensor == 0 ? static_cast<double>(counted) : 0.0;
  if (model_.groups->world().size() > 1) {
    model_.groups->world()
        .all_reduce(sums_.data(), sums_.data(), static_cast<int64_t>(sums_.size()), DType::kF64,
                    comm::ReduceOp::kSum, "step.norm_and_loss")
        ->wait();
  }
  const double correction = counts_vary_ ? mean_correction(sums_.back()) : 1.0;
  const auto norms_end = sums_.begin() + static_cast<int64_t>(layers_.size());
  StepResult result;
  result.loss_scale = model_.loss_scale.value();
  result.grad_norm = std::sqrt(std::accumulate(sums_.begin(), norms_end, 0.0)) /
                     model_.loss_scale.value() * correction;
  result.loss = *loss_sum * correction;
  for (auto sum = further_sums; sum != loss_sum; ++sum) {
    result.further_losses.push_back(*sum * correction);
  }
  result.routers = router_metrics();
  const bool overflowed = !std::isfinite(result.grad_norm);
  // A lower scale helps gradients that overflow, not a loss that does.
  const bool has_loss =
      std::all_of(further_sums, loss_sum + 1, [](double sum) { return std::isfinite(sum); });
  result.skipped = overflowed && has_loss && model_.loss_scale.guards();
  if (!has_loss || (overflowed && !result.skipped)) {
    throw NotFinite(fmt::format("step {}: the loss is {} and the gradient norm {}", step_ + 1,
                                result.loss, result.grad_norm));
  }
  skips_ = result.skipped;
  if (!early_ && !skips_) {
    model_.optimizer->begin(learning_rate_,
                            clipping(result.grad_norm) / model_.loss_scale.value() * correction);
  }
  model_.loss_scale.step_done(result.skipped);
  return result;
}

// The sums of the routers lie behind the norms, layer by layer; behind them those of losses.
void StepUpdate::add_router_loads() {
  const std::vector<model::LayerSpec>& here = model_.parameters->layout().layers;
  auto at = sums_.begin() + static_cast<int64_t>(layers_.size());
  for (const model::LayerSpec& layer : layers_) {
    const int64_t count = layout::router_sums(plan_.job.model, layer);
    const auto own = std::ranges::find(here, layer.index, &model::LayerSpec::index);
    if (count > 0 && own != here.end()) {
      const layers::RouterLoad load =
          model_.layers[static_cast<size_t>(own - here.begin())]->take_router_load();
      std::copy(load.tokens.begin(), load.tokens.end(), at);
      const double extra[] = {static_cast<double>(load.dropped), load.balance_loss, load.z_loss};
      static_assert(std::size(extra) == layout::kRouterExtraSums);
      std::copy(std::begin(extra), std::end(extra), at + plan_.job.model.num_experts);
    }
    at += count;
  }
}

std::vector<record::RouterMetrics> StepUpdate::router_metrics() const {
  const TrainingSpec& training = plan_.job.training;
  const auto tokens = static_cast<double>(*training.global_batch * training.sequence_length);
  std::vector<record::RouterMetrics> routers;
  auto at = sums_.begin() + static_cast<int64_t>(layers_.size());
  for (const model::LayerSpec& layer : layers_) {
    if (layout::router_sums(plan_.job.model, layer) == 0) continue;
    record::RouterMetrics router;
    router.layer = layer.name;
    for (int64_t e = 0; e < plan_.job.model.num_experts; ++e) {
      router.tokens.push_back(std::llround(*at++));
    }
    router.dropped = std::llround(*at++);
    router.balance_loss = *at++ / tokens;
    router.z_loss = *at++ / tokens;
    routers.push_back(std::move(router));
  }
  return routers;
}

// Each microbatch divides by the number of all its targets, before the number of targets of the
// global batch that count is known. This factor turns the sums into the mean over the targets that
// count. It is exactly 1 if all count.
double StepUpdate::mean_correction(double counted) const {
  const TrainingSpec& training = plan_.job.training;
  if (counted == 0) {
    throw NoTargetCounts(
        fmt::format("step {}: none of the {} targets of the global batch counts in the loss: the "
                    "loss mask, document ends and padding exclude every target; correct the mask "
                    "or the data, or raise training.global_batch",
                    step_ + 1, *training.global_batch * training.sequence_length));
  }
  return static_cast<double>(*training.global_batch * training.sequence_length) / counted;
}

// As torch.nn.utils.clip_grad_norm_: with 1e-6 beside the norm, and never enlarging.
double StepUpdate::clipping(double norm) const {
  const double limit = plan_.job.training.optimizer.gradient_clipping;
  return limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0;
}

}  // namespace smp::engine
