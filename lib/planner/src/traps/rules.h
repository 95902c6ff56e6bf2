#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/memory/event_peaks.h"

// The rules behind traps_of(): each looks at a plan and says what is wrong, or nothing.
namespace smp::traps {

struct Looked {
  const Plan& plan;
  choice::LayoutChoice choice;  // choice_of(plan)
  const std::vector<memory::EventPeak>& events;

  const ModelSpec& model() const { return plan.job.model; }
  const TrainingSpec& training() const { return plan.job.training; }
  const ClusterSpec& cluster() const { return plan.job.cluster; }
};

using Finding = std::optional<std::string>;

// Shapes that tensor cores compute slowly: matmul_traps.cpp.
Finding vocabulary_not_padded(const Looked& at);
Finding hidden_not_aligned(const Looked& at);
Finding ffn_not_aligned(const Looked& at);
Finding head_dim_not_aligned(const Looked& at);
Finding head_dim_large(const Looked& at);
Finding small_matmuls(const Looked& at);

// Degrees and their places: layout_traps.cpp.
Finding tensor_over_hosts(const Looked& at);
Finding kv_heads_replicated(const Looked& at);
Finding pipeline_bubble(const Looked& at);
Finding uneven_stages(const Looked& at);
Finding expert_imbalance(const Looked& at);

// What harms the training itself: training_traps.cpp.
Finding batch_over_token_limit(const Looked& at);
Finding sequence_over_positions(const Looked& at);
Finding fp16_without_loss_scaling(const Looked& at);

// What the prediction leaves out: training_traps.cpp.
Finding vision_tower(const Looked& at);

}  // namespace smp::traps
