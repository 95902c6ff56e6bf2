#pragma once

#include <vector>

#include "smp/interchange/importers/imported.h"

namespace smp::importers {

// Turns off what a program has only where its file asks for it: offloading, and the degrees of
// parallelism. Left open, the planner would choose them, and price a job that is not the file's.
// Nothing is turned off that a file gives, leaves to a script, or keeps in a file that is not
// there. A DeepSpeed file is silent about the degrees, which its script has; beside a model of
// Hugging Face's they are 1.
void turn_off_absent(std::vector<Imported>& files);

}  // namespace smp::importers
