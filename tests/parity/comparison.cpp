#include "parity/comparison.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <tuple>

#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/traffic.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/tensorfiles/safetensors/safetensors.h"
#include "worst.h"

namespace smp::parity {
namespace {

Weights read_weights(const std::string& path) {
  safetensors::SafetensorsReader reader(path);
  Weights weights;
  for (const safetensors::SafetensorsEntry& entry : reader.header().entries) {
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

// Without the weights.
tolerance::Parity differences_of_steps(const Run& run, const Run& reference) {
  tolerance::Parity worst{};
  REQUIRE(run.result.losses.size() == reference.result.losses.size());
  for (size_t i = 0; i < run.result.losses.size(); ++i) {
    worst.loss = smp::testing::worst_of(worst.loss,
                                        relative(run.result.losses[i], reference.result.losses[i]));
    worst.grad_norm = smp::testing::worst_of(
        worst.grad_norm, relative(run.result.grad_norms[i], reference.result.grad_norms[i]));
  }
  return worst;
}

}  // namespace

Run run(const Plan& plan, int64_t steps, const gpu::GpuLoader& open_gpu) {
  const ScratchFolder folder;
  return run_in(folder.path(), plan, steps, 0, open_gpu);
}

Run run_in(const std::string& folder, const Plan& plan, int64_t steps, int64_t resumed,
           const gpu::GpuLoader& open_gpu) {
  Run run;
  jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
    training::TrainOptions options;
    options.steps = steps;
    options.run_dir = folder;
    options.threads = 1;
    options.resume = resumed > 0;
    if (resumed > 0) options.resume_step = resumed;
    if (open_gpu) options.open_gpu = open_gpu;
    training::RunResult result = training::train(plan, world, options);
    if (world.rank() == 0) run.result = std::move(result);
  });
  run.weights = read_weights(folder + "/weights/model.safetensors");
  return run;
}

tolerance::Parity differences(const Run& run, const Run& reference) {
  tolerance::Parity worst = differences_of_steps(run, reference);
  REQUIRE(run.weights.size() == reference.weights.size());
  for (const auto& [name, expected] : reference.weights) {
    INFO(name);
    const std::vector<double>& values = run.weights.at(name);
    REQUIRE(values.size() == expected.size());
    const auto compare = [&](size_t begin, size_t end) {
      worst.weight =
          smp::testing::worst_of(worst.weight, distance(values, expected, begin, end).relative);
    };
    if (!name.ends_with("attn.c_attn.bias")) {
      compare(0, values.size());
      continue;
    }
    // Hugging Face keeps q, k and v of GPT-2 in one tensor; the middle third is the keys'.
    const size_t third = values.size() / 3;
    compare(0, third);
    compare(2 * third, 3 * third);
    worst.key_bias_absolute = smp::testing::worst_of(
        worst.key_bias_absolute, distance(values, expected, third, 2 * third).absolute);
  }
  return worst;
}

void check_parity(const Run& run, const Run& reference, const tolerance::Parity& allowed) {
  const tolerance::Parity worst = differences(run, reference);
  MESSAGE(fmt::format(
      "relative: loss {:.1e}, gradient norm {:.1e}, weights {:.1e}; key biases {:.1e} absolute",
      worst.loss, worst.grad_norm, worst.weight, worst.key_bias_absolute));
  CHECK(worst.loss <= allowed.loss);
  CHECK(worst.grad_norm <= allowed.grad_norm);
  CHECK(worst.weight <= allowed.weight);
  CHECK(worst.key_bias_absolute <= allowed.key_bias_absolute);
}

void check_narrow(const Run& run, const Run& reference, double allowed) {
  const tolerance::Parity worst = differences_of_steps(run, reference);
  MESSAGE(fmt::format("relative: loss {:.1e}, gradient norm {:.1e}, allowed {:.1e}", worst.loss,
                      worst.grad_norm, allowed));
  CHECK(worst.loss <= allowed);
  CHECK(worst.grad_norm <= allowed);
}

void check_wire(const Plan& plan, const training::RunResult& result) {
  using Key = std::tuple<std::string, mesh::CollectiveOp, int64_t>;
  for (const record::RankMeasurements& rank : result.ranks) {
    INFO("rank " << rank.rank);
    std::map<Key, std::pair<int64_t, int64_t>> planned, counted;  // calls, bytes
    std::map<Key, int64_t> most;                                  // bytes that tokens decide
    for (const layout::Traffic& row : layout::step_traffic(plan, rank.rank)) {
      auto& [calls, bytes] = planned[{row.label, row.op, row.group_size}];
      calls += row.calls * result.run.steps;
      bytes += row.wire_bytes * result.run.steps;
      if (row.label.starts_with("expert.") && row.axis == mesh::Axis::kExpert &&
          row.op != mesh::CollectiveOp::kAllToAll) {
        most[{row.label, row.op, row.group_size}] += row.most_wire_bytes * result.run.steps;
      }
    }
    for (const comm::TrafficCount& row : rank.traffic) {
      if (row.label.starts_with("setup.") || row.label.starts_with("save.")) continue;
      auto& [calls, bytes] = counted[{row.label, row.op, row.group_size}];
      calls += row.calls;
      bytes += row.wire_bytes;
    }
    for (const auto& [key, expected] : planned) {
      INFO(std::get<0>(key) << " " << name_of(std::get<1>(key)) << " over " << std::get<2>(key));
      if (most.contains(key)) {  // rows that tokens send; perhaps none
        CHECK(counted[key].second <= most[key]);
        continue;
      }
      REQUIRE(counted.count(key) == 1);
      CHECK(counted[key].first == expected.first);
      CHECK(counted[key].second == expected.second);
    }
    CHECK(counted.size() == planned.size());
  }
}

void check_memory(const Plan& plan, const training::RunResult& result) {
  double worst = 0, worst_category = 0;
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  for (const record::RankMeasurements& rank : result.ranks) {
    INFO("rank " << rank.rank);
    const mesh::Coord coord = mesh.coord_of(rank.rank);
    const RankPrediction predicted = memory::predict_memory(plan, coord.pipeline, coord.tensor);
    ledger::CategoryBytes states{};
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
    for (const MemoryCategory category :
         {MemoryCategory::kActivations, MemoryCategory::kWorkspace}) {
      const int64_t said = states[static_cast<size_t>(category)];
      const int64_t had = rank.peak.by_category[static_cast<size_t>(category)];
      INFO(name_of(category) << " predicted " << said << ", counted " << had);
      const double off = std::abs(static_cast<double>(had - said));
      CHECK(off <= tolerance::kPeakBytes * counted);
      worst_category = smp::testing::worst_of(worst_category, off / counted);
    }
    CHECK(rank.host_peak_bytes == predicted.host_bytes);
  }
  MESSAGE(
      fmt::format("peak bytes: predicted within {:.2f} % of counted, activations and workspace "
                  "{:.2f} % of them",
                  100 * worst, 100 * worst_category));
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
    check_parity(one, reference, tolerance);
    check_wire(plan, one.result);
    check_memory(plan, one.result);
  }
}

}  // namespace smp::parity
