#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "parity/comparison.h"
#include "parity/layouts.h"
#include "scratch_folder.h"

// Each layout trains the same model on the same batches as one rank does, with its ranks as
// threads, and must come to the same losses and weights; what it counted of memory and traffic must
// be what the plan predicts.
namespace smp::parity {
namespace {

void compare(const ModelSpec& model, Precision precision, const std::vector<LayoutCase>& cases,
             int64_t steps) {
  const tolerance::Parity& tolerance =
      precision == Precision::kFp64 ? tolerance::kParityF64 : tolerance::kParityF32;
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  const auto plan_for = [&](const LayoutCase& layout) {
    return plan_of(model, layout, precision, folder / "text.txt");
  };
  LayoutCase one_rank{"one rank", {}};
  one_rank.gradient_clipping = cases.front().gradient_clipping;
  const Run reference = run(plan_for(one_rank), steps);
  CHECK(reference.result.losses.back() < reference.result.losses.front());
  for (const LayoutCase& layout : cases) {
    INFO(layout.name);
    MESSAGE(layout.name);
    const Plan plan = plan_for(layout);
    const Run one = run(plan, steps);
    check_losses(one, reference, tolerance);
    check_weights(one, reference, tolerance);
    check_wire(plan, one.result);
    check_memory(plan, one.result);
  }
}

}  // namespace

TEST_CASE("GPT-2, fp64, 50 steps: every layout trains as one rank does") {
  compare(gpt2_model(), Precision::kFp64, layouts(), 50);
}
TEST_CASE("GPT-2, fp32, 50 steps: every layout trains as one rank does") {
  compare(gpt2_model(), Precision::kFp32, layouts(), 50);
}
TEST_CASE("Llama, fp64, 50 steps: every layout trains as one rank does") {
  compare(llama_model(), Precision::kFp64, layouts(), 50);
}
TEST_CASE("Llama, fp32, 50 steps: every layout trains as one rank does") {
  compare(llama_model(), Precision::kFp32, layouts(), 50);
}

TEST_CASE("GPT-2, fp64, 10 steps, no clipping: updates of reduced buckets change nothing") {
  compare(gpt2_model(), Precision::kFp64, unclipped(), 10);
}
TEST_CASE("GPT-2, fp64, 20 steps: every pipeline schedule trains as one rank does") {
  compare(gpt2_model(), Precision::kFp64, schedules(), 20);
}
TEST_CASE("Llama, fp32, 20 steps: every pipeline schedule trains as one rank does") {
  compare(llama_model(), Precision::kFp32, schedules(), 20);
}

// The other halves of tied and untied, and a second size for the predictions of memory.
TEST_CASE("GPT-2, untied, wider, fp64, 5 steps: every layout trains as one rank does") {
  compare(wider(gpt2_untied_model()), Precision::kFp64, layouts(), 5);
}
TEST_CASE("Llama, tied, wider, fp32, 5 steps: every layout trains as one rank does") {
  compare(wider(llama_tied_model()), Precision::kFp32, layouts(), 5);
}

// Blocks of neither family.
TEST_CASE("Qwen 3, fp64, 5 steps: every layout trains as one rank does") {
  compare(qwen3_model(), Precision::kFp64, layouts(), 5);
}
TEST_CASE("Phi, fp64, 5 steps: every layout trains as one rank does") {
  compare(phi_model(), Precision::kFp64, layouts(), 5);
}

// An encoder and a decoder.
TEST_CASE("T5, fp64, 10 steps: every layout trains as one rank does") {
  compare(t5_model(), Precision::kFp64, stacks(), 10);
}
TEST_CASE("T5 1.1, fp32, 5 steps: every layout trains as one rank does") {
  compare(t5_gated_model(), Precision::kFp32, stacks(), 5);
}

}  // namespace smp::parity
