#include <doctest/doctest.h>

#include "runtime/exposed_communication.h"

namespace smp {

// In virtual time, so that the numbers are exact.
TEST_CASE("computing hides all but 15 % of communication that takes half its time") {
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters}) {
    CAPTURE(static_cast<int>(sharding));
    const ExposedCommunication once = exposed_communication(exposure_plan(sharding), {});
    MESSAGE("exposed: " << 100 * once.share() << " %");
    CHECK(once.communication_s == doctest::Approx(once.compute_s / 2));
    CHECK(once.share() <= 0.15);
    CHECK(exposed_communication(exposure_plan(sharding), {}).exposed_s == once.exposed_s);
  }
}

}  // namespace smp
