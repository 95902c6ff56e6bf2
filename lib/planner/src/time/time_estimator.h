#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "choice/choice_cache.h"
#include "cost/priced_stages.h"
#include "smp/planner/time/time_estimate.h"
#include "time/stage_seconds.h"
#include "time/step_messages.h"

namespace smp::time {

// Stages differ at the ends; the slowest of those that are priced between stands for all of them.
// What there is not is as the first one.
struct EstimatedStages {
  struct Stage {
    cost::StageParameters held;
    StageSeconds seconds;  // of one microbatch
  };
  Stage first, last, middle;
};
EstimatedStages estimate_stages(const JobSpec& job, const choice::LayoutChoice& choice,
                                const cost::LayerBytes& bytes, const cost::LayerSeconds& layers,
                                const std::vector<cost::PricedStage>& priced);

// A step but for what follows its last backward.
struct PipelineEstimate {
  TimeEstimate time;   // step_s is left 0
  size_t busiest = 0;  // of the first, the last and the middle stage
  cost::StageParameters held;
  double forward_s = 0, backward_s = 0;
};
PipelineEstimate estimate_pipeline(const JobSpec& job, const choice::LayoutChoice& choice,
                                   const EstimatedStages& stages);

TimeEstimate with_step_messages(const PipelineEstimate& pipeline, const StepMessages& after);

// In our engine a simulation hides at most this share more of sharding and data reduction than the
// closed form: it knows bucket by bucket what overlaps what.
inline constexpr double kMostHidden = 0.4;

// estimate_time() without model_flops, for a search. Layouts share what their stages take of one
// microbatch, their pipeline, and what follows it, where they differ in nothing that it depends on.
// One thread.
class TimeEstimator {
 public:
  explicit TimeEstimator(const JobSpec& job) : job_(job) {}

  // `bytes` and `layers` are those of the choice.
  TimeEstimate step(const choice::LayoutChoice& choice, const cost::LayerBytes& bytes,
                    const cost::LayerSeconds& layers);
  const PipelineEstimate& pipeline(const choice::LayoutChoice& choice,
                                   const cost::LayerBytes& bytes, const cost::LayerSeconds& layers);

 private:
  static constexpr size_t kPlaces = 256;
  static constexpr size_t kPipelines = 32;  // few layouts share theirs, and those come together

  // The layout that stands for all that share it.
  static choice::LayoutChoice key_of_pipeline(choice::LayoutChoice choice);
  choice::LayoutChoice key_of_stages(choice::LayoutChoice choice,
                                     const cost::LayerKinds& kinds) const;
  choice::LayoutChoice key_of_transfers(choice::LayoutChoice choice,
                                        const cost::LayerKinds& kinds) const;

  const JobSpec& job_;
  cost::PricedStages priced_;
  choice::ChoiceCache<EstimatedStages> stages_{kPlaces};
  choice::ChoiceCache<PipelineEstimate> pipelines_{kPipelines};
  std::array<choice::ChoiceCache<StepTransfers>, 3> transfers_{
      choice::ChoiceCache<StepTransfers>(kPlaces), choice::ChoiceCache<StepTransfers>(kPlaces),
      choice::ChoiceCache<StepTransfers>(kPlaces)};  // by the stage that is the busiest
};

}  // namespace smp::time
