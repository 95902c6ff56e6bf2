#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "parity/engine_run.h"
#include "smp/plan/data/data_files.h"

// What went wrong silently in other engines where parallel degrees met, by the numbers of their
// issues. The right values are made by hand: each sample is trained alone on one rank, and the sums
// over its targets are added up and divided by the number of targets that count. The norm is the
// square root of the sum of squares of the gradients that this gives, each element once.
namespace smp::parity {
namespace {

constexpr int64_t kSamples = 12, kLength = 32;

int64_t token_of(int64_t sample, int64_t place) {
  return (place * place * 5 + 17 * place + 29 * sample + sample * place) % 97;
}

// The first `counted(sample)` targets of each sample count.
using Counted = int64_t (*)(int64_t sample);
int64_t all_of(int64_t) { return kLength; }
// Of a rank that has the later tokens of some samples none.
int64_t few_of(int64_t sample) { return (sample * 7 + 3) % kLength; }

engine::ReadSamples samples_of(Counted counted) {
  return [=](int64_t, int64_t first, int64_t count, const engine::SampleBuffers& out) {
    for (int64_t i = 0; i < count * kLength; ++i) {
      const int64_t sample = first + i / kLength, place = i % kLength;
      if (int64_t* tokens = out.integers(model::BatchField::kTokens)) {
        tokens[i] = token_of(sample, place);
      }
      if (int64_t* targets = out.integers(model::BatchField::kTargets)) {
        targets[i] = place < counted(sample) ? token_of(sample, place + 1) : data::kNoTarget;
      }
    }
  };
}

struct Right {
  double loss = 0, norm = 0;
  Weights gradients;
};

Right right_values(const ModelSpec& model, const Weights& initial, Counted counted) {
  TargetSums sums;
  int64_t targets = 0;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    std::vector<int64_t> tokens, rights;
    for (int64_t place = 0; place < counted(sample); ++place) {
      tokens.push_back(token_of(sample, place));
      rights.push_back(token_of(sample, place + 1));
    }
    if (tokens.empty()) continue;
    sums.add(sums_of_targets(model, initial, tokens, rights, 0));
    targets += counted(sample);
  }
  TargetSums mean;
  mean.add(sums, 1.0 / static_cast<double>(targets));
  Right right{.loss = mean.loss, .gradients = std::move(mean.gradients)};
  double squares = 0;
  for (const auto& [name, values] : right.gradients) {
    for (const double value : values) squares += value * value;
  }
  right.norm = std::sqrt(squares);
  return right;
}

void check_layouts(const ModelSpec& model, const std::vector<LayoutCase>& layouts,
                   Counted counted = all_of) {
  const Weights initial = initial_weights(model);
  const Right right = right_values(model, initial, counted);
  for (const LayoutCase& layout : layouts) {
    INFO(model.name << ", " << layout.name);
    Plan plan = plan_of(model, layout, Precision::kFp64, "");
    plan.job.training.data_loss_mask = counted != all_of;
    take_plain_steps(plan);
    Run run;
    const Weights gradients = gradients_of(plan, initial, samples_of(counted), &run);
    CHECK(gradient_difference(gradients, right.gradients) <= 1e-12);
    CHECK(run.result.losses.front() == doctest::Approx(right.loss).epsilon(1e-12));
    CHECK(run.result.grad_norms.front() == doctest::Approx(right.norm).epsilon(1e-12));
  }
}

// Tensor ranks that share a sequence between the matrices.
LayoutCase split(LayoutCase layout) {
  layout.name += ", split sequences";
  layout.sequence_parallel = true;
  return layout;
}
LayoutCase in_microbatches(LayoutCase layout, int64_t count) {
  layout.microbatches = count;
  return layout;
}

ModelSpec without_router_losses(ModelSpec model) {
  model.router_balance_loss = model.router_z_loss = 0;
  return model;
}

constexpr PipelineKind kOneForwardOneBackward = PipelineKind::kInterleaved;

}  // namespace

// A rank divided by its own targets, or by the ranks of another group than the one that summed.
TEST_CASE("Megatron-LM #7452: one mean over the targets of all ranks and microbatches") {
  const std::vector<LayoutCase> layouts{
      in_microbatches({"d2", {.replica = 2}}, 1),
      in_microbatches({"d2", {.replica = 2}}, 6),
      {"t2c2", {.tensor = 2, .context = 2}},
      split({"t2c2", {.tensor = 2, .context = 2}}),
      {"p2c2 zb_h1", {.pipeline = 2, .context = 2}, PipelineKind::kZbH1},
      {"d2c2 ZeRO-3", {.shard = 2, .context = 2}, kOneForwardOneBackward, Sharding::kParameters},
      {"p2t2d2", {.pipeline = 2, .tensor = 2, .replica = 2}}};
  check_layouts(llama_model(), layouts, few_of);
}

// The loss was multiplied by the context degree, and gradients were divided by a group with or
// without these ranks. The gradient is the sum over a sequence's slices, whatever their number.
TEST_CASE("Megatron-LM #673, #906, #1464: context ranks add up, and divide by nothing") {
  const std::vector<LayoutCase> layouts{
      {"ring of 2", {.context = 2}},
      {"ring of 4", {.context = 4}},
      {"exchange of 2", {.context = 2, .exchange = 2}},
      {"ring of 2, exchange of 2", {.context = 4, .exchange = 2}},
      {"d2, ring of 4", {.replica = 2, .context = 4}},
      {"d2, exchange of 2", {.replica = 2, .context = 2, .exchange = 2}}};
  check_layouts(llama_model(), layouts);
  check_layouts(gpt2_model(), layouts);
}

// Both stages that hold the table have a part of its gradient.
TEST_CASE("Megatron-LM #7452: a tied embedding of two stages has the gradient of both uses, once") {
  const std::vector<LayoutCase> layouts{
      {"p2", {.pipeline = 2}},
      {"p3", {.pipeline = 3}},
      {"p2t2", {.pipeline = 2, .tensor = 2}},
      {"p2c2", {.pipeline = 2, .context = 2}},
      {"p2d2 ZeRO-1", {.pipeline = 2, .shard = 2}},
      {"p2d2 zb_v", {.pipeline = 2, .replica = 2}, PipelineKind::kZbV, Sharding::kNone, 2}};
  check_layouts(gpt2_model(), layouts);
  check_layouts(llama_tied_model(), layouts, few_of);
}

// Sinks of the heads of further tensor ranks were left out of the norm (finding 8), and copies of a
// parameter may count more than once.
TEST_CASE(
    "Megatron-LM #7452: in the norm each element counts once: sinks, norms, biases, routers") {
  const std::vector<LayoutCase> layouts{
      {"t2", {.tensor = 2}},
      split({"t2", {.tensor = 2}}),
      {"c2", {.context = 2}},
      {"exchange of 2", {.context = 2, .exchange = 2}},
      {"d2 ZeRO-2", {.shard = 2}, kOneForwardOneBackward, Sharding::kGradients},
      {"t2d2 ZeRO-3", {.tensor = 2, .shard = 2}, kOneForwardOneBackward, Sharding::kParameters},
      {"p2t2d2", {.pipeline = 2, .tensor = 2, .replica = 2}}};
  check_layouts(without_router_losses(gpt_oss_model()), layouts);
  check_layouts(qwen3_model(), layouts);
  // KV heads that several tensor ranks hold.
  check_layouts(llama_model(), {{"t4", {.tensor = 4}}, split({"t4", {.tensor = 4}})});
}

// Gradients of experts doubled with each further microbatch where their group had one rank.
TEST_CASE("Megatron-LM #6660: microbatches of a mixture add their gradients, each once") {
  std::vector<LayoutCase> layouts;
  for (const int64_t microbatches : {1, 2, 3, 6}) {
    layouts.push_back(in_microbatches({"one rank", {}}, microbatches));
    layouts.push_back(in_microbatches(
        {"d2 ZeRO-3", {.shard = 2}, kOneForwardOneBackward, Sharding::kParameters}, microbatches));
    layouts.push_back(in_microbatches({"t2c2", {.tensor = 2, .context = 2}}, microbatches));
  }
  check_layouts(without_router_losses(mixtral_model()), layouts);
}

// The gradients of the balancing and z losses grew or shrank with the tensor, context and data
// degrees. The balancing loss of a sequence is of that sequence, whoever has its tokens.
TEST_CASE("Megatron-LM #3672, Automodel #1408: a router's losses weigh the same in any layout") {
  ModelSpec model = mixtral_model();
  model.router_balance_loss = 0.3;
  model.router_z_loss = 0.05;
  const std::vector<LayoutCase> layouts{in_microbatches({"one rank", {}}, 1),
                                        in_microbatches({"one rank", {}}, 6),
                                        {"t2", {.tensor = 2}},
                                        split({"t2", {.tensor = 2}}),
                                        {"ring of 4", {.context = 4}},
                                        {"exchange of 2", {.context = 2, .exchange = 2}},
                                        {"p2d2", {.pipeline = 2, .replica = 2}},
                                        {"t2c2d2 ZeRO-3",
                                         {.tensor = 2, .shard = 2, .context = 2},
                                         kOneForwardOneBackward,
                                         Sharding::kParameters}};
  check_layouts(model, layouts);
}

// Rows that a cut vocabulary was padded with took a part of the probability.
TEST_CASE("a vocabulary that no degree divides has no other rows: 97 over 2 and 4 ranks") {
  ModelSpec model = llama_model();
  model.vocab_size = 97;
  check_layouts(model, {{"t2", {.tensor = 2}},
                        {"t4", {.tensor = 4}},
                        split({"t4", {.tensor = 4}}),
                        {"t2c2", {.tensor = 2, .context = 2}},
                        {"p2t2", {.pipeline = 2, .tensor = 2}}});
}

}  // namespace smp::parity
