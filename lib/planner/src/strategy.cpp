#include "smp/planner/strategy.h"

#include "smp/plan/check.h"

namespace smp {

std::string_view name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::kFastest: return "fastest";
    case Strategy::kBestPractice: return "best-practice";
  }
  check_failed(__FILE__, __LINE__, "unknown strategy");
}

}  // namespace smp
