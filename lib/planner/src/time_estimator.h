#pragma once

#include <array>
#include <cstddef>

#include "choice_cache.h"
#include "layer_parameters.h"
#include "smp/planner/time_estimate.h"
#include "stage_seconds.h"
#include "step_messages.h"

namespace smp {

// Stages differ at the ends; of those between, the first holds the most blocks. What there is not
// is as the first one.
struct EstimatedStages {
  struct Stage {
    StageParameters held;
    StageSeconds seconds;  // of one microbatch
  };
  Stage first, last, middle;
};
EstimatedStages estimate_stages(const JobSpec& job, const LayoutChoice& choice,
                                const LayerBytes& bytes, const LayerSeconds& layers);

// A step but for what follows its last backward.
struct PipelineEstimate {
  TimeEstimate time;   // step_s is left 0
  size_t busiest = 0;  // of the first, the last and the middle stage
  StageParameters held;
  double forward_s = 0, backward_s = 0;
};
PipelineEstimate estimate_pipeline(const JobSpec& job, const LayoutChoice& choice,
                                   const EstimatedStages& stages);

TimeEstimate with_step_messages(const PipelineEstimate& pipeline, const StepMessages& after);

// estimate_time() without model_flops, for a search. Layouts share what their stages take of one
// microbatch, their pipeline, and what follows it, where they differ in nothing that it depends on.
// One thread.
class TimeEstimator {
 public:
  explicit TimeEstimator(const JobSpec& job) : job_(job) {}

  // `bytes` and `layers` are those of the choice.
  TimeEstimate step(const LayoutChoice& choice, const LayerBytes& bytes,
                    const LayerSeconds& layers);
  const PipelineEstimate& pipeline(const LayoutChoice& choice, const LayerBytes& bytes,
                                   const LayerSeconds& layers);

 private:
  static constexpr size_t kPlaces = 32;

  // The layout that stands for all that share it.
  static LayoutChoice key_of_pipeline(LayoutChoice choice);
  LayoutChoice key_of_stages(LayoutChoice choice) const;
  static LayoutChoice key_of_transfers(LayoutChoice choice);

  const JobSpec& job_;
  ChoiceCache<EstimatedStages> stages_{kPlaces};
  ChoiceCache<PipelineEstimate> pipelines_{kPlaces};
  std::array<ChoiceCache<StepTransfers>, 3> transfers_{
      ChoiceCache<StepTransfers>(kPlaces), ChoiceCache<StepTransfers>(kPlaces),
      ChoiceCache<StepTransfers>(kPlaces)};  // by the stage that is the busiest
};

}  // namespace smp
