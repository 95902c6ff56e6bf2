#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "parity/engine_run.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"

// What counts in the loss: the mean is over the targets that count in the global batch, however
// unevenly they lie on microbatches and ranks. The reference knows no masks: it trains on the
// beginnings of each sample, and subtracts.
namespace smp::parity {
namespace {

constexpr int64_t kSamples = 12, kLength = 32;

// The targets [begin, end) of a sample that count: of a third of the samples none, among them all
// of the last rank of four; of others one, a few, or all.
struct Counted {
  int64_t begin = 0, end = 0;
};
Counted counted_of(int64_t step, int64_t sample) {
  static constexpr Counted kOfSamples[kSamples] = {{0, 32},  {31, 32}, {0, 0},   {5, 6},
                                                   {0, 0},   {20, 29}, {0, 1},   {7, 32},
                                                   {16, 16}, {0, 0},   {32, 32}, {4, 4}};
  return kOfSamples[static_cast<size_t>((sample + 5 * step) % kSamples)];
}

int64_t token_of(int64_t step, int64_t sample, int64_t place) {
  return (place * place * 7 + 13 * place + 31 * sample + 101 * step + sample * place) % 97;
}

engine::ReadSamples masked_samples(bool all_count = false) {
  return [=](int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out) {
    for (int64_t i = 0; i < count * kLength; ++i) {
      const int64_t sample = first + i / kLength, place = i % kLength;
      const Counted counted = counted_of(step, sample);
      const bool counts = all_count || (place >= counted.begin && place < counted.end);
      if (out.integers(model::BatchField::kTokens) != nullptr) {
        out.integers(model::BatchField::kTokens)[i] = token_of(step, sample, place);
      }
      if (out.integers(model::BatchField::kTargets) != nullptr) {
        out.integers(model::BatchField::kTargets)[i] =
            counts ? token_of(step, sample, place + 1) : data::kNoTarget;
      }
    }
  };
}

Plan masked_plan(const ModelSpec& model, const LayoutCase& layout,
                 Precision precision = Precision::kFp64) {
  Plan plan = plan_of(model, layout, precision, "");
  plan.job.training.data_loss_mask = true;
  return plan;
}

// A layout of each kind that a mean could go wrong in.
std::vector<LayoutCase> uneven_layouts() {
  const auto one_f_one_b = PipelineKind::kInterleaved;
  const auto one = Sharding::kOptimizerState, two = Sharding::kGradients,
             three = Sharding::kParameters;
  std::vector<LayoutCase> layouts{
      {"one rank", {}},
      {"d4", {.replica = 4}},
      {"d2 ZeRO-1", {.shard = 2}},
      {"d4 ZeRO-2 over 2", {.shard = 2, .replica = 2}, one_f_one_b, two},
      {"d4 ZeRO-3", {.shard = 4}, one_f_one_b, three},
      {"p3", {.pipeline = 3}},
      {"t2", {.tensor = 2}},
      {"t2p2d2 ZeRO-3", {.pipeline = 2, .tensor = 2, .shard = 2}, one_f_one_b, three},
      {"p2d2 zb_h1", {.pipeline = 2, .replica = 2}, PipelineKind::kZbH1},
      {"p2d2 ZeRO-2 zb_v", {.pipeline = 2, .shard = 2}, PipelineKind::kZbV, two, 2},
      {"p2 recompute", {.pipeline = 2}, one_f_one_b, one, 1, Recompute::kFull},
  };
  LayoutCase split{"t2d2, split sequences", {.tensor = 2, .replica = 2}};
  split.sequence_parallel = true;
  layouts.push_back(split);
  LayoutCase single{"d2, one microbatch", {.replica = 2}};
  single.microbatches = 1;
  layouts.push_back(single);
  LayoutCase many{"d2 ZeRO-1, 6 microbatches", {.shard = 2}};
  many.microbatches = 6;
  layouts.push_back(many);
  return layouts;
}

}  // namespace

TEST_CASE("a mean over the targets that count: loss and gradients of samples that lack masks") {
  for (const ModelSpec& model : {gpt2_model(), llama_model()}) {
    const Weights initial = initial_weights(model);
    TargetSums sums;
    int64_t targets = 0;
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      const Counted counted = counted_of(0, sample);
      if (counted.begin == counted.end) continue;
      std::vector<int64_t> tokens, rights;
      for (int64_t place = 0; place < counted.end; ++place) {
        tokens.push_back(token_of(0, sample, place));
        rights.push_back(token_of(0, sample, place + 1));
      }
      sums.add(sums_of_targets(model, initial, tokens, rights, counted.begin));
      targets += counted.end - counted.begin;
    }
    REQUIRE(targets == 32 + 1 + 1 + 9 + 1 + 25);
    TargetSums mean;
    mean.add(sums, 1.0 / static_cast<double>(targets));
    for (const LayoutCase& layout : uneven_layouts()) {
      INFO(model.name << ", " << layout.name);
      Plan plan = masked_plan(model, layout);
      take_plain_steps(plan);
      Run run;
      const Weights gradients = gradients_of(plan, initial, masked_samples(), &run);
      CHECK(gradient_difference(gradients, mean.gradients) <= 1e-12);
      CHECK(run.result.losses.front() == doctest::Approx(mean.loss).epsilon(1e-12));
      double squares = 0;
      for (const auto& [name, values] : mean.gradients) {
        for (const double value : values) squares += value * value;
      }
      CHECK(run.result.grad_norms.front() == doctest::Approx(std::sqrt(squares)).epsilon(1e-12));
    }
  }
}

TEST_CASE("fp64, 5 steps: with uneven masks every layout trains as one rank does") {
  for (const bool by_sgd : {false, true}) {
    const auto plan_for = [&](const LayoutCase& layout) {
      Plan plan = masked_plan(llama_model(), layout);
      OptimizerSpec& optimizer = plan.job.training.optimizer;
      if (by_sgd) {
        optimizer.kind = OptimizerKind::kSgd;
        optimizer.momentum = 0.9;
        optimizer.learning_rate = 0.1;
      }
      return plan;
    };
    std::vector<LayoutCase> layouts = uneven_layouts();
    LayoutCase offloaded{"d2 ZeRO-3, optimizer and parameters offloaded",
                         {.shard = 2},
                         PipelineKind::kInterleaved,
                         Sharding::kParameters};
    offloaded.offload_optimizer = offloaded.offload_parameters = true;
    layouts.push_back(offloaded);
    const Run reference = run_engine(plan_for({"one rank", {}}), masked_samples(), 5);
    for (const LayoutCase& layout : layouts) {
      INFO(layout.name << std::string(by_sgd ? ", SGD" : ", AdamW"));
      const Plan plan = plan_for(layout);
      const Run run = run_engine(plan, masked_samples(), 5);
      const EngineDifference worst = engine_difference(run, reference);
      CHECK(worst.loss <= 1e-12);
      CHECK(worst.grad_norm <= 1e-12);
      CHECK(worst.weight <= 1e-12);
      check_wire(plan, run.result);
      check_memory(plan, run.result);
    }
  }
}

TEST_CASE("a mask that lets all count changes no bit") {
  for (const Precision precision : {Precision::kFp64, Precision::kBf16, Precision::kFp16}) {
    for (const LayoutCase& layout :
         {LayoutCase{"d2 ZeRO-2", {.shard = 2}, PipelineKind::kInterleaved, Sharding::kGradients},
          LayoutCase{"t2p2", {.pipeline = 2, .tensor = 2}}}) {
      INFO(layout.name);
      const Plan masked = masked_plan(gpt2_model(), layout, precision);
      Plan plain = masked;
      plain.job.training.data_loss_mask = false;
      const Run one = run_engine(masked, masked_samples(true), 3);
      const Run other = run_engine(plain, masked_samples(true), 3);
      CHECK(one.result.losses == other.result.losses);
      CHECK(one.result.grad_norms == other.result.grad_norms);
      CHECK(one.weights == other.weights);
    }
  }
}

TEST_CASE("16-bit training with uneven masks stays near fp32's") {
  const Run reference =
      run_engine(masked_plan(llama_model(), {"", {}}, Precision::kFp32), masked_samples(), 5);
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const LayoutCase& layout : {LayoutCase{"one rank", {}}, LayoutCase{"t2", {.tensor = 2}},
                                     LayoutCase{"d4 ZeRO-1", {.shard = 4}}}) {
      INFO(layout.name);
      const Run run =
          run_engine(masked_plan(llama_model(), layout, precision), masked_samples(), 5);
      check_narrow(run, reference, 0.02);
    }
  }
}

TEST_CASE("a global batch in which nothing counts stops all ranks, by the step") {
  const engine::ReadSamples masked = masked_samples();
  const engine::ReadSamples empty_third = [&](int64_t step, int64_t first, int64_t count,
                                              const engine::SampleBuffers& out) {
    masked(step, first, count, out);
    if (step == 2 && out.integers(model::BatchField::kTargets) != nullptr) {
      std::fill_n(out.integers(model::BatchField::kTargets), count * kLength, data::kNoTarget);
    }
  };
  for (const LayoutCase& layout :
       {LayoutCase{"p2", {.pipeline = 2}},
        LayoutCase{"d2 ZeRO-3", {.shard = 2}, PipelineKind::kInterleaved, Sharding::kParameters}}) {
    INFO(layout.name);
    const Plan plan = masked_plan(gpt2_model(), layout);
    try {
      run_engine(plan, empty_third, 4);
      FAIL("no error");
    } catch (const optim::TrainingError& error) {
      CHECK(std::string(error.what()) ==
            "step 3: none of the 384 targets of the global batch counts in the loss: the loss "
            "mask, document ends and padding exclude every target; correct the mask or the data, "
            "or raise training.global_batch");
    }
  }
}

TEST_CASE("a target that is missing where all count is refused, by step and sample") {
  Plan plan = plan_of(gpt2_model(), {"", {}}, Precision::kFp64, "");
  try {
    run_engine(plan, masked_samples(), 1);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what()) ==
          "step 1: sample 1 of the global batch has a token without a target, but all targets "
          "count in the loss of this job: set training.data.loss_mask: true, or set "
          "training.data.pack to documents or pad");
  }
}

}  // namespace smp::parity
