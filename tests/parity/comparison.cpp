#include "parity/comparison.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <tuple>

#include "scratch_folder.h"
#include "smp/comm/thread_group.h"
#include "smp/plan/traffic.h"
#include "smp/planner/memory_model.h"
#include "smp/runtime/safetensors.h"
#include "worst.h"

namespace smp::parity {
namespace {

Weights read_weights(const std::string& path) {
  SafetensorsReader reader(path);
  Weights weights;
  for (const SafetensorsEntry& entry : reader.header().entries) {
    std::vector<double>& values = weights[entry.name];
    if (entry.dtype == DType::kF64) {
      values.resize(static_cast<size_t>(entry.bytes() / 8));
      reader.read(entry, values.data());
    } else {
      std::vector<float> narrow(static_cast<size_t>(entry.bytes() / 4));
      reader.read(entry, narrow.data());
      values.assign(narrow.begin(), narrow.end());
    }
  }
  return weights;
}

double relative(double value, double reference) {
  return std::abs(value - reference) / std::abs(reference);
}

struct Distance {
  double relative = 0, absolute = 0;
};

Distance distance(const std::vector<double>& values, const std::vector<double>& reference,
                  size_t begin, size_t end) {
  double difference = 0, norm = 0;
  Distance result;
  for (size_t i = begin; i < end; ++i) {
    const double d = values[i] - reference[i];
    difference += d * d;
    norm += reference[i] * reference[i];
    result.absolute = std::max(result.absolute, std::abs(d));
  }
  result.relative = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  return result;
}

}  // namespace

Run run(const Plan& plan, int64_t steps, const OpenGpu& open_gpu) {
  const ScratchFolder folder;
  Run run;
  run_ranks(static_cast<int>(plan.degrees.world()), [&](Communicator& world) {
    TrainOptions options;
    options.steps = steps;
    options.run_dir = folder.path();
    options.threads = 1;
    if (open_gpu) options.open_gpu = open_gpu;
    RunResult result = train(plan, world, options);
    if (world.rank() == 0) run.result = std::move(result);
  });
  run.weights = read_weights(folder / "weights/model.safetensors");
  return run;
}

void check_losses(const Run& run, const Run& reference, const tolerance::Parity& tolerance) {
  REQUIRE(run.result.losses.size() == reference.result.losses.size());
  double worst_loss = 0, worst_norm = 0;
  for (size_t i = 0; i < run.result.losses.size(); ++i) {
    worst_loss = smp::testing::worst_of(worst_loss,
                                        relative(run.result.losses[i], reference.result.losses[i]));
    worst_norm = smp::testing::worst_of(
        worst_norm, relative(run.result.grad_norms[i], reference.result.grad_norms[i]));
  }
  MESSAGE(fmt::format("largest relative difference: loss {:.1e}, gradient norm {:.1e}", worst_loss,
                      worst_norm));
  CHECK(worst_loss <= tolerance.loss);
  CHECK(worst_norm <= tolerance.grad_norm);
}

void check_weights(const Run& run, const Run& reference, const tolerance::Parity& tolerance) {
  REQUIRE(run.weights.size() == reference.weights.size());
  double worst = 0, worst_key_bias = 0;
  for (const auto& [name, expected] : reference.weights) {
    INFO(name);
    const std::vector<double>& values = run.weights.at(name);
    REQUIRE(values.size() == expected.size());
    // Hugging Face keeps q, k and v of GPT-2 in one tensor; the middle third is the keys'.
    const size_t third = values.size() / 3;
    if (name.ends_with("attn.c_attn.bias")) {
      for (const size_t begin : {size_t{0}, 2 * third}) {
        const double d = distance(values, expected, begin, begin + third).relative;
        CHECK(d <= tolerance.weight);
        worst = smp::testing::worst_of(worst, d);
      }
      const double d = distance(values, expected, third, 2 * third).absolute;
      CHECK(d <= tolerance.key_bias_absolute);
      worst_key_bias = smp::testing::worst_of(worst_key_bias, d);
      continue;
    }
    const double d = distance(values, expected, 0, values.size()).relative;
    CHECK(d <= tolerance.weight);
    worst = smp::testing::worst_of(worst, d);
  }
  MESSAGE(
      fmt::format("weights: relative {:.1e}, key biases {:.1e} absolute", worst, worst_key_bias));
}

void check_wire(const Plan& plan, const RunResult& result) {
  using Key = std::tuple<std::string, CollectiveOp, int64_t>;
  for (const RankFacts& rank : result.ranks) {
    INFO("rank " << rank.rank);
    std::map<Key, std::pair<int64_t, int64_t>> planned, counted;  // calls, bytes
    for (const Traffic& row : step_traffic(plan, rank.rank)) {
      auto& [calls, bytes] = planned[{row.label, row.op, row.group_size}];
      calls += row.calls * result.run.steps;
      bytes += row.wire_bytes * result.run.steps;
    }
    for (const TrafficCount& row : rank.traffic) {
      if (row.label.starts_with("setup.") || row.label.starts_with("save.")) continue;
      auto& [calls, bytes] = counted[{row.label, row.op, row.group_size}];
      calls += row.calls;
      bytes += row.wire_bytes;
    }
    for (const auto& [key, expected] : planned) {
      INFO(std::get<0>(key) << " " << name_of(std::get<1>(key)) << " over " << std::get<2>(key));
      REQUIRE(counted.count(key) == 1);
      CHECK(counted[key].first == expected.first);
      CHECK(counted[key].second == expected.second);
    }
    CHECK(counted.size() == planned.size());
  }
}

void check_memory(const Plan& plan, const RunResult& result) {
  double worst = 0;
  const Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  for (const RankFacts& rank : result.ranks) {
    INFO("rank " << rank.rank);
    const Coord coord = mesh.coord_of(rank.rank);
    const RankPrediction predicted = predict_memory(plan, coord.pipeline, coord.tensor);
    CategoryBytes states{};
    for (const MemoryTerm& term : predicted.terms) {
      states[static_cast<size_t>(term.category)] += term.bytes;
    }
    for (const MemoryCategory category :
         {MemoryCategory::kWeights, MemoryCategory::kGradients, MemoryCategory::kOptimizer}) {
      INFO(name_of(category));
      CHECK(rank.peak.by_category[static_cast<size_t>(category)] ==
            states[static_cast<size_t>(category)]);
    }
    const auto counted = static_cast<double>(rank.peak.bytes);
    INFO("peak predicted " << predicted.peak_bytes << " in " << predicted.peak_phase << ", counted "
                           << rank.peak.bytes << " in " << to_string(rank.peak.phase));
    const double difference = relative(static_cast<double>(predicted.peak_bytes), counted);
    CHECK(difference <= tolerance::kPeakBytes);
    worst = smp::testing::worst_of(worst, difference);
    CHECK(rank.host_peak_bytes == predicted.host_bytes);
  }
  MESSAGE(fmt::format("peak bytes: predicted within {:.2f} % of counted", 100 * worst));
}

void compare(const ModelSpec& model, Precision precision, const std::vector<LayoutCase>& cases,
             int64_t steps) {
  const tolerance::Parity& tolerance =
      precision == Precision::kFp64 ? tolerance::kParityF64 : tolerance::kParityF32;
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_data(model);
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

}  // namespace smp::parity
