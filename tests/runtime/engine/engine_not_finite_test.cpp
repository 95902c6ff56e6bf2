#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "runtime/short_runs.h"
#include "smp/plan/layout/layout.h"
#include "smp/tensorfiles/safetensors/safetensors.h"

// A run that starts from spoilt weights stops in its first step and names rank, layer and tensor,
// whatever technique it runs with: the step is run again with each tensor looked at.
namespace smp {
namespace {

using namespace smp::test;
using parity::LayoutCase;

constexpr const char* kTheirName = "transformer.h.3.mlp.c_fc.weight";  // [in, out]
constexpr int64_t kLayer = 4;                                          // the embedding is layer 0

struct Technique {
  LayoutCase layout;
  Precision precision = Precision::kFp32;
};

std::vector<Technique> techniques() {
  const auto interleaved = PipelineKind::kInterleaved;
  const mesh::Degrees p2{.pipeline = 2}, z2{.shard = 2};
  const auto with = [](LayoutCase layout, const auto& change) {
    change(layout);
    return layout;
  };
  const auto two_chunks = [](LayoutCase& layout) {
    layout.virtual_stages = 2;
    layout.microbatches = 2;
  };
  return {
      {{"one rank", {}}},
      {{"t2", {.tensor = 2}}},
      {{"ZeRO-2", z2, interleaved, Sharding::kGradients}},
      {{"ZeRO-3", z2, interleaved, Sharding::kParameters}},
      {{"p2 ZeRO-3", {.pipeline = 2, .shard = 2}, interleaved, Sharding::kParameters}},
      {{"hybrid shard", {.shard = 2, .replica = 2}, interleaved, Sharding::kParameters}},
      {{"zb_h1", p2, PipelineKind::kZbH1}},
      {with({"zb_v", p2, PipelineKind::kZbV}, two_chunks)},
      {with({"virtual", p2, PipelineKind::kVirtual}, two_chunks)},
      {with({"recompute", p2}, [](LayoutCase& layout) { layout.recompute = Recompute::kFull; })},
      {with({"offload", p2}, [](LayoutCase& layout) { layout.offload_activations = true; })},
      {{"fp16", p2}, Precision::kFp16},
      {{"bf16, ZeRO-3", z2, interleaved, Sharding::kParameters}, Precision::kBf16},
  };
}

// The weights in `from`, with the first `count` elements (-1: all) of one tensor replaced.
void spoil(const std::string& from, const std::string& to, float value, int64_t count) {
  std::filesystem::create_directory(to);
  std::filesystem::copy(from + "/config.json", to + "/config.json");
  const safetensors::SafetensorsReader reader(from + "/model.safetensors");
  safetensors::SafetensorsWriter writer(to + "/model.safetensors", reader.header().entries);
  for (const safetensors::SafetensorsEntry& entry : reader.header().entries) {
    std::vector<float> values(static_cast<size_t>(entry.bytes() / 4));
    reader.read(entry, values.data());
    if (entry.name == kTheirName) {
      std::fill_n(values.begin(), count < 0 ? static_cast<int64_t>(values.size()) : count, value);
    }
    writer.append(entry.name, values.data(), entry.bytes());
  }
  writer.finish();
}

std::vector<int64_t> holders_of_layer(const Plan& plan) {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
    const layout::RankLayout layout = layout::rank_layout(plan, rank);
    const bool holds = std::ranges::any_of(
        layout.parameters, [](const auto& parameter) { return parameter.layer == kLayer; });
    if (holds) ranks.push_back(rank);
  }
  return ranks;
}

class SpoiltRuns {
 public:
  SpoiltRuns() {
    ShortRuns::run(runs_.plan({"", {}}, Precision::kFp32), options_of(folder_ / "good", 1));
    const std::string good = folder_ / "good/weights";
    spoil(good, folder_ / "nan", std::numeric_limits<float>::quiet_NaN(), -1);
    // Finite, but not its product with what a norm makes: one row of the stored tensor.
    const int64_t row = parity::gpt2_model().ffn_hidden_size;
    spoil(good, folder_ / "huge", 3e38F, row);
    spoil(good, folder_ / "huge16", 6e4F, row);
  }

  Plan plan(const Technique& technique, const std::string& weights) const {
    Plan plan = runs_.plan(technique.layout, technique.precision);
    plan.job.training.init_from = folder_ / weights;
    plan.job.training.data_tokens = TokenKind::kBytes;
    return plan;
  }

 private:
  ShortRuns runs_;
  ScratchFolder folder_;
};

}  // namespace

TEST_CASE("not finite: weights that are no numbers are refused when they are loaded") {
  const SpoiltRuns runs;
  for (const Technique& technique : techniques()) {
    INFO(technique.layout.name);
    const Plan plan = runs.plan(technique, "nan");
    const std::string error = ShortRuns::error(plan, options_of("", 2));
    INFO(error);
    CHECK(error.starts_with("training.init_from: " + plan.job.training.init_from + ": tensor '"));
    CHECK(error.find("' holds inf or nan") != std::string::npos);
  }
}

TEST_CASE("not finite: a product that overflows is named by rank, layer and microbatch") {
  const SpoiltRuns runs;
  for (const Technique& technique : techniques()) {
    INFO(technique.layout.name);
    const Plan plan =
        runs.plan(technique, technique.precision == Precision::kFp16 ? "huge16" : "huge");
    const std::string error = ShortRuns::error(plan, options_of("", 2));
    INFO(error);
    CHECK(error.starts_with("step 1: the loss is "));
    CHECK(error.find(fmt::format("first non-finite value: the forward output of layer {} "
                                 "(layers.3) on rank {}, microbatch 0",
                                 kLayer, holders_of_layer(plan).front())) != std::string::npos);
  }
}

}  // namespace smp
