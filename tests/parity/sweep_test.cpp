#include <doctest/doctest.h>

#include "parity/comparison.h"
#include "parity/covering.h"
#include "parity/layouts.h"

// What the other tests of this folder do in a few steps, for 100: scripts/sweep-parity.
namespace smp::parity {

TEST_CASE("GPT-2, fp64, 100 steps: 18 layouts train as one rank does") {
  compare(gpt2_model(), Precision::kFp64, mixed_layouts(), 100);
}
TEST_CASE("GPT-2, fp32, 100 steps: 18 layouts train as one rank does") {
  compare(gpt2_model(), Precision::kFp32, mixed_layouts(), 100);
}
TEST_CASE("Llama, fp64, 100 steps: 18 layouts train as one rank does") {
  compare(llama_model(), Precision::kFp64, mixed_layouts(), 100);
}
TEST_CASE("Llama, fp32, 100 steps: 18 layouts train as one rank does") {
  compare(llama_model(), Precision::kFp32, mixed_layouts(), 100);
}
TEST_CASE("the covering set, fp64, 100 steps: every combination trains as one rank does") {
  compare_covering_set(100);
}

}  // namespace smp::parity
