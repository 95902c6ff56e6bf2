#pragma once

#include "smp/plan/spec/plan.h"

namespace smp::prediction {

// Everything that a plan file says of a run before it happens: bytes of every rank class, step
// time, bubble. `plan` is resolved; its own predictions are not read. Pure; any thread.
Predictions predict(const Plan& plan);

}  // namespace smp::prediction
