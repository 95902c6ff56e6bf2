#pragma once

#include <string>

#include "smp/plan/schedule.h"

namespace smp {

// A verified schedule as text for people: one line per stage, one column per unit of time. A
// forward pass of a microbatch takes one column ("F2"), a backward pass two ("B2 B2"), messages
// nothing; dots are idle time.
std::string draw(const Schedule& schedule);

}  // namespace smp
