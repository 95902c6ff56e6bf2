#include <fmt/format.h>

#include "runtime/exposed_communication.h"
#include "smp/plan/job_names.h"

// Communication that computing does not hide, of its total, with layers and a link that take a
// fixed time: in virtual time, where it is exact, and by the clock, where layers and link sleep.
// Exit code 1 where more than 15 % is exposed.
namespace smp {
namespace {

constexpr double kMost = 0.15;

int bench() {
  bool good = true;
  fmt::print("22 blocks, 4 ranks; computing takes twice as long as communication\n");
  fmt::print("{:<16} {:>11} {:>15} {:>22} {:>12}\n", "sharding", "computing", "communication",
             "exposed, virtual time", "by the clock");
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters}) {
    const Plan plan = exposure_plan(sharding);
    const ExposedCommunication exact = exposed_communication(plan, {});
    const ExposedCommunication timed = exposed_communication(plan, {.virtual_time = false});
    const bool hidden = exact.share() <= kMost && timed.share() <= kMost;
    good = good && hidden;
    fmt::print("{:<16} {:>8.1f} ms {:>12.1f} ms {:>20.1f} % {:>10.1f} %{}\n", name_of(sharding),
               1e3 * exact.compute_s, 1e3 * exact.communication_s, 100 * exact.share(),
               100 * timed.share(), hidden ? "" : "  more than 15 %");
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace smp

int main() { return smp::bench(); }
