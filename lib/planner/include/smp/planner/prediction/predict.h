#pragma once

#include "smp/plan/spec/plan.h"
#include "smp/planner/time/time_model.h"

namespace smp::prediction {

// Everything that a plan file says of a run before it happens: bytes of every rank class, step
// time, bubble. `plan` is resolved; its own predictions are not read. Pure; any thread.
Predictions predict(const Plan& plan);
// `time`: predict_time() of the plan.
Predictions predict(const Plan& plan, const time::TimePrediction& time);

}  // namespace smp::prediction
