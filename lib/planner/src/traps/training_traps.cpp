#include <fmt/format.h>

#include "smp/plan/text/units.h"
#include "traps/rules.h"

namespace smp::traps {
Finding batch_over_token_limit(const Looked& at) {
  const int64_t limit = TrainingSpec{}.max_tokens_per_batch;  // SMP's
  const int64_t samples = at.choice.data() * at.choice.micro_batch * at.choice.microbatches;
  const int64_t sequence = at.training().sequence_length;
  if (samples * sequence <= limit) return std::nullopt;
  return fmt::format(
      "a step has {} samples x {} = {} tokens, more than {}: beyond it larger batches rarely train "
      "a model in fewer tokens. {}",
      text::with_commas(samples), text::with_commas(sequence),
      text::with_commas(samples * sequence), text::with_commas(limit),
      limit < sequence
          ? "Use shorter sequences"
          : fmt::format("Lower global_batch to {}, with fewer replicas or more tensor or pipeline "
                        "parallelism",
                        text::with_commas(limit / sequence)));
}

Finding sequence_over_positions(const Looked& at) {
  const ModelSpec& model = at.model();
  if (model.rope_scaling != RopeScaling::kLlama3) return std::nullopt;
  const double reach =
      static_cast<double>(model.rope_original_positions) * model.rope_scaling_factor;
  if (static_cast<double>(at.training().sequence_length) <= reach) return std::nullopt;
  return fmt::format(
      "sequence_length {} is above rope_original_positions {} x rope_scaling_factor {} = {:.0f}: "
      "positions beyond it turn by angles that the model has not seen. Raise rope_scaling_factor "
      "or shorten the sequences",
      text::with_commas(at.training().sequence_length),
      text::with_commas(model.rope_original_positions), model.rope_scaling_factor, reach);
}

Finding fp16_without_loss_scaling(const Looked& at) {
  const LossScaleSpec& scale = at.training().loss_scale;
  const bool is_fp16 = at.training().precision == Precision::kFp16;
  if (!is_fp16 || scale.dynamic || scale.init_scale > 1) return std::nullopt;
  return fmt::format(
      "precision fp16 with a loss scale of {}: gradients below 6e-8 become zero. Remove "
      "loss_scale.dynamic: false, or train in bf16",
      scale.init_scale);
}

Finding vision_tower(const Looked& at) {
  const int64_t parameters = at.plan.job.model.vision_parameters;
  if (parameters == 0) return std::nullopt;
  return fmt::format(
      "the vision tower counts as {} parameters on the first stage: its activations and its time "
      "are not priced",
      text::with_commas(parameters));
}

}  // namespace smp::traps
