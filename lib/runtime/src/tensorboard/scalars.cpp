#include "scalars.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "smp/plan/runinfo/training_record.h"

namespace smp::tensorboard {
namespace {

constexpr double kGiB = 1 << 30;

// Keys that are always shown. Other keys are shown if their value is not the default.
constexpr std::array<std::string_view, 10> kAlways = {"training.sequence_length",
                                                      "training.global_batch",
                                                      "training.precision",
                                                      "training.steps",
                                                      "training.seed",
                                                      "training.optimizer.kind",
                                                      "training.optimizer.schedule",
                                                      "training.optimizer.learning_rate",
                                                      "training.optimizer.weight_decay",
                                                      "training.optimizer.warmup_steps"};

// Keys that do not affect training: names, hosts, checkpoints, evaluation and metrics.
constexpr std::array<std::string_view, 7> kNever = {"name",
                                                    "model.name",
                                                    "model.hf_config",
                                                    "cluster.",
                                                    "training.checkpoint.",
                                                    "training.evaluation.",
                                                    "training.metrics"};

bool is_among(const auto& keys, std::string_view key) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view one) {
    return key == one || (one.ends_with('.') && key.starts_with(one));
  });
}

}  // namespace

std::vector<std::pair<std::string, double>> scalars_of(const record::StepMetrics& metrics) {
  std::vector<std::pair<std::string, double>> scalars = {
      {"loss/train", metrics.loss},
      {"grad_norm", metrics.grad_norm},
      {"learning_rate", metrics.learning_rate},
      {"tokens_seen", static_cast<double>(metrics.tokens_seen)},
      {"throughput/tokens_per_s", metrics.tokens_per_s},
      {"time/step_s", metrics.step_s},
      {"time/exposed_communication_s", metrics.exposed_s},
      {"memory/live_GiB", static_cast<double>(metrics.memory_live_bytes) / kGiB},
      {"memory/peak_GiB", static_cast<double>(metrics.memory_peak_bytes) / kGiB}};
  for (size_t i = 0; i < metrics.further_losses.size(); ++i) {
    scalars.emplace_back("loss/mtp_" + std::to_string(i + 1), metrics.further_losses[i]);
  }
  for (const record::SourceEpoch& of : metrics.epochs)
    scalars.emplace_back("data/epoch/" + of.source, of.epoch);
  if (metrics.mfu) scalars.emplace_back("throughput/mfu", *metrics.mfu);
  if (metrics.loss_scale) {
    scalars.emplace_back("loss_scale/value", *metrics.loss_scale);
    scalars.emplace_back("loss_scale/skipped_steps", static_cast<double>(metrics.skipped_steps));
  }
  if (metrics.evaluation_loss) {
    scalars.emplace_back("loss/evaluation", *metrics.evaluation_loss);
    for (const record::SetLoss& of : metrics.evaluation_losses) {
      scalars.emplace_back("loss/evaluation/" + of.set, of.loss);
    }
    if (metrics.accuracy) {
      scalars.emplace_back("accuracy/evaluation", *metrics.accuracy);
    } else {
      scalars.emplace_back("perplexity/evaluation", std::exp(*metrics.evaluation_loss));
    }
  }
  if (!metrics.routers.empty()) {
    const record::RouterSummary experts = record::summary_of(metrics.routers);
    scalars.emplace_back("experts/imbalance", experts.imbalance);
    scalars.emplace_back("experts/dropped", experts.dropped);
    scalars.emplace_back("experts/balance_loss", experts.balance_loss);
    scalars.emplace_back("experts/z_loss", experts.z_loss);
  }
  if (metrics.cache_flushes)
    scalars.emplace_back("memory/cache_flushes", static_cast<double>(*metrics.cache_flushes));
  return scalars;
}

std::vector<std::pair<std::string, std::string>> hparams_of(const Plan& plan) {
  const auto settings = runinfo::record_training(JobSpec{}, {}).job;
  const std::map<std::string_view, std::string_view> defaults(settings.begin(), settings.end());
  std::vector<std::pair<std::string, std::string>> hparams;
  for (const auto& [key, text] : runinfo::record_training(plan.job, {}).job) {
    const auto found = defaults.find(key);
    const bool is_default = found != defaults.end() && found->second == text;
    if (is_among(kNever, key) || (is_default && !is_among(kAlways, key))) continue;
    hparams.emplace_back(key, text);
  }
  return hparams;
}

}  // namespace smp::tensorboard
