#pragma once

#include <string>

#include "smp/plan/plan.h"

namespace smp {

// The plan's pipeline schedule as a picture in characters: one line a stage, one column a forward's
// time, a backward taking two; messages take no time in it. For people.
std::string picture_of_schedule(const Plan& plan);

}  // namespace smp
