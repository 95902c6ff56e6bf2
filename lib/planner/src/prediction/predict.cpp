#include "smp/planner/prediction/predict.h"

#include "smp/planner/memory/memory_model.h"

namespace smp::prediction {

Predictions predict(const Plan& plan) { return predict(plan, time::predict_time(plan)); }

Predictions predict(const Plan& plan, const time::TimePrediction& time) {
  const TrainingSpec& training = plan.job.training;
  Predictions predictions;
  predictions.ranks = memory::predict_memory(plan);
  for (RankPrediction& rank : predictions.ranks) {
    rank.busy_ns = time.stage_busy_ns.at(static_cast<size_t>(rank.stage));
  }
  predictions.step_ns = time.step_ns;
  predictions.bubble_ppm = time.bubble_ppm;
  predictions.tokens_per_step = *training.global_batch * training.sequence_length;
  return predictions;
}

}  // namespace smp::prediction
