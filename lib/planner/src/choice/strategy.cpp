#include "smp/planner/choice/strategy.h"

#include "smp/plan/base/check.h"

namespace smp::choice {

std::string_view name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::kFastest: return "fastest";
    case Strategy::kBestPractice: return "best-practice";
  }
  check_failed(__FILE__, __LINE__, "unknown strategy");
}

}  // namespace smp::choice
