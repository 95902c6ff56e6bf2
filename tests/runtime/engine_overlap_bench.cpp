#include <fmt/format.h>

#include <algorithm>

#include "runtime/exposed_communication.h"
#include "runtime/hidden_reduction.h"
#include "smp/plan/job_names.h"

// Communication that computing does not hide, of its total, with layers and a link that take a
// fixed time: in virtual time, where it is exact, and by the clock, where layers and link sleep.
// Then reductions in earnest, inside this host. Exit code 1 where more than 15 % is exposed, or
// ranks that sleep hide less than 70 % of their reductions, or take a tenth longer than the larger
// of computing and communication.
namespace smp {
namespace {

constexpr double kMost = 0.15;
constexpr double kLeastHidden = 0.7, kMostOfLarger = 1.1;

// What the CPUs compute themselves leaves nothing to hide in, so that is shown alone.
bool reductions_are_hidden() {
  bool good = true;
  fmt::print(
      "\n20 blocks of 5 ms and 63 MB of gradients, reduced inside this host, in a step\n"
      "{:<24} {:>12} {:>12} {:>8} {:>12} {:>8}\n",
      "", "no overlap", "overlap", "ratio", "waiting", "hidden");
  for (const bool sleeps : {true, false})
    for (const int ranks : {2, 4}) {
      const HiddenReduction found = hidden_reduction(ranks, sleeps);
      const double larger =
          std::max(found.serial_step_s - found.serial_waited_s, found.serial_waited_s);
      const bool hidden =
          !sleeps || (found.hidden() >= kLeastHidden && found.step_s <= kMostOfLarger * larger);
      good = good && hidden;
      fmt::print("{:<24} {:>9.1f} ms {:>9.1f} ms {:>8.2f} {:>9.1f} ms {:>6.1f} %{}\n",
                 fmt::format("{} ranks, {}", ranks, sleeps ? "asleep" : "computing"),
                 1e3 * found.serial_step_s, 1e3 * found.step_s, found.step_s / found.serial_step_s,
                 1e3 * found.waited_s, 100 * found.hidden(),
                 hidden ? "" : "  less than 70 %, or a tenth above the larger");
    }
  return good;
}

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
  good = reductions_are_hidden() && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace smp

int main() { return smp::bench(); }
