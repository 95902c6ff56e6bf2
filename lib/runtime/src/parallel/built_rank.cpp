#include "smp/runtime/parallel/built_rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string_view>

#include "smp/comm/recording.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/runtime/parallel/parallelize.h"
#include "smp/runtime/record/run_report.h"

namespace smp::parallel {
namespace {

// Weights, gradients and optimizer state exist after building; the first step allocates the rest.
bool is_built(MemoryCategory category) {
  return category == MemoryCategory::kWeights || category == MemoryCategory::kGradients ||
         category == MemoryCategory::kOptimizer;
}

}  // namespace

BuiltRank build_rank(const Plan& plan, int64_t rank) {
  const std::vector<std::string> refused = rules::what_engine_cannot_build(plan);
  if (!refused.empty()) {
    throw ConfigError(
        fmt::format("the engine cannot build this plan:\n  {}", fmt::join(refused, "\n  ")));
  }
  const int64_t world_size = plan.degrees.world();
  if (rank < 0 || rank >= world_size) {
    throw ConfigError(
        fmt::format("rank {} does not exist: the plan has ranks 0 to {}", rank, world_size - 1));
  }
  ledger::install_counting_allocator();
  ledger::MemoryLedger ledger(rank, plan.job.cluster.memory_per_process_bytes);
  ledger.set_phase({"build"});
  const ledger::LedgerScope scope(ledger);
  const auto world = comm::make_recording_communicator(
      static_cast<int>(rank), static_cast<int>(world_size), std::make_shared<comm::Recording>());
  const ParallelModel model = apply_parallelism(plan, *world, ledger);
  const layout::RankLayout& layout = model.parameters->layout();
  return {rank,          layout.elements, layout.optimizer_elements,
          ledger.live(), ledger.peak(),   model.host->live().bytes};
}

std::string describe(const BuiltRank& built, const Plan& plan) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  const mesh::Coord coord = mesh.coord_of(static_cast<int>(built.rank));
  const RankPrediction& prediction = record::prediction_for(plan, coord);
  const ledger::CategoryBytes predicted = record::bytes_by_category(prediction);
  std::string text = fmt::format(
      "rank {} of {}: pipeline {}, tensor {}, shard {}, replica {}; {} parameters, {} updated "
      "here\n{:<16}{:>18}{:>18}\n",
      built.rank, plan.degrees.world(), coord.pipeline, coord.tensor, coord.shard, coord.replica,
      built.parameters, built.updated, "bytes", "built", "planned");
  const auto row = [&](std::string_view name, int64_t here, int64_t there, const char* note) {
    text += fmt::format("{:<16}{:>18}{:>18}{}\n", name, here, there, note);
  };
  int64_t states = 0, planned_states = 0;
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    row(name_of(category), built.held.by_category[i], predicted[i],
        is_built(category) ? "" : "  grows in a step");
    if (!is_built(category)) continue;
    states += built.held.by_category[i];
    planned_states += predicted[i];
  }
  row("all", built.held.bytes, prediction.peak_bytes,
      fmt::format("  planned: at its peak, in {}", prediction.peak_phase).c_str());
  row("host memory", built.host_bytes, prediction.host_bytes, "");
  text += fmt::format("peak while building: {} bytes\n", built.peak.bytes);
  const int64_t more = states - planned_states;
  if (more == 0) {
    return text +
           fmt::format("weights, gradients and optimizer state are as planned: {} bytes\n", states);
  }
  return text + fmt::format(
                    "weights, gradients and optimizer state are {} bytes, {} {} than "
                    "planned\n",
                    states, more > 0 ? more : -more, more > 0 ? "more" : "less");
}

}  // namespace smp::parallel
