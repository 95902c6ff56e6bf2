#include "smp/plan/spec/checkpoint_strategy.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

using namespace smp;

TEST_CASE("the strategies of checkpoints are SMP's words") {
  CHECK(layers_per_checkpoint("each") == 1);
  CHECK(layers_per_checkpoint("contiguous") == std::numeric_limits<int64_t>::max());
  CHECK(layers_per_checkpoint("group_1") == 1);
  CHECK(layers_per_checkpoint("group_12") == 12);
  for (const char* word : {"", "Each", "group", "group_", "group_0", "group_-2", "group_2x",
                           "group_99999999999999999999"}) {
    INFO(std::string(word));
    CHECK_FALSE(layers_per_checkpoint(word));
  }
}
