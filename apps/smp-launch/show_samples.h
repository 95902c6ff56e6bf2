#pragma once

#include <functional>
#include <string>

#include "smp/plan/spec/plan.h"

namespace smp {

// Steps of a run, from 1 as in its metrics.
struct StepRange {
  int64_t first = 0, last = 0;
};

// "3-5" or "3". Throws UsageError.
StepRange step_range_of(const std::string& text);

// The samples of these steps, a line for each piece of a document: source, epoch, document, offset,
// tokens, and the file where it lies. The same in any layout. `print` gets those of a step at a
// time; false: nobody reads on. Throws ConfigError for a plan whose model reads no tokens or that
// has fewer steps, and as TokenData does.
void show_samples(const Plan& plan, const StepRange& steps,
                  const std::function<bool(const std::string&)>& print);

}  // namespace smp
