#pragma once

#include <cstdint>
#include <string>

#include "smp/plan/spec/plan.h"

namespace smp::report {

// The plan's pipeline schedule as a picture in characters, at most `columns` wide: one line a
// stage, time to the right, a pass of one microbatch in a cell. Passes take what they do in the
// textbook (forward 1, backward 2, or 1 and 1 where weight gradients are deferred), messages
// nothing. What does not fit is left out, and the picture says how wide it would be. For people.
std::string picture_of_schedule(const Plan& plan, int64_t columns = 80);

}  // namespace smp::report
