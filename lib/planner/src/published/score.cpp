#include "smp/planner/published/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "prediction/over_frameworks.h"
#include "prediction/possible_jobs.h"
#include "published/csv_reader.h"
#include "published/published_run.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/text/suggest.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"
#include "smp/planner/memory/memory_estimate.h"
#include "smp/planner/time/time_estimate.h"

namespace smp::published {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

constexpr std::array kNeeded = {
    "id",          "model",      "layers",       "hidden",    "heads",    "seq",
    "gpus",        "gpu_type",   "tp",           "pp",        "dp",       "sharding",
    "micro_batch", "grad_accum", "global_batch", "recompute", "precision"};

void require_columns(const CsvTable& table) {
  std::string missing;
  for (const char* name : kNeeded) {
    if (std::find(table.columns.begin(), table.columns.end(), name) != table.columns.end()) {
      continue;
    }
    missing += missing.empty() ? "" : ", ";
    missing += name;
    const auto near = text::nearest(name, table.columns);
    if (near && std::find(kNeeded.begin(), kNeeded.end(), *near) == kNeeded.end()) {
      missing += fmt::format(" ('{}'?)", *near);
    }
  }
  if (missing.empty()) return;
  throw ConfigError(
      fmt::format("{}:1:1: not a table of published runs: missing column {}", table.path, missing));
}

struct Predicted {
  memory::MemoryEstimate memory;
  time::TimeEstimate time;
  prediction::Fit fit = prediction::Fit::kNo;
};

Predicted predict(const JobSpec& job, const choice::LayoutChoice& choice) {
  const cost::LayerBytes bytes = cost::layer_bytes(job, choice);
  const cost::LayerSeconds seconds = cost::layer_seconds(job, choice);
  Predicted predicted;
  predicted.memory = memory::estimate_memory(job, choice, bytes);
  predicted.time = time::estimate_time(job, choice, bytes, seconds);
  predicted.fit = prediction::fit_of(job, choice, predicted.memory);
  return predicted;
}

// Where a run's layout is not published: the fastest of a few usual ones that fits.
void choose_layout(PublishedRun& run) {
  choice::LayoutChoice best = run.choice;
  double best_s = 0;
  const int64_t world = run.choice.world();
  const int64_t batch = run.choice.data() * run.choice.micro_batch * run.choice.microbatches;
  for (int32_t tensor : {1, 2, 4, 8}) {
    for (int32_t micro : {1, 2, 4, 8}) {
      for (Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        if (world % tensor != 0 || tensor > run.job.cluster.processes_per_host ||
            run.job.model.num_kv_heads % tensor != 0) {
          continue;
        }
        choice::LayoutChoice choice = run.choice;
        choice.tensor = tensor;
        choice.shard = static_cast<int32_t>(world / tensor);
        choice.replica = 1;
        choice.sharding = Sharding::kParameters;
        choice.sequence_parallel = tensor > 1;
        choice.micro_batch = micro;
        choice.microbatches = static_cast<int32_t>(batch / (choice.data() * micro));
        choice.recompute = recompute;
        if (choice.microbatches < 1) continue;
        const Predicted predicted = predict(run.job, choice);
        if (predicted.fit == prediction::Fit::kNo) continue;
        if (best_s == 0 || predicted.time.step_s < best_s) {
          best = choice;
          best_s = predicted.time.step_s;
        }
      }
    }
  }
  run.choice = best;
}

double bytes_of(MemoryFigure figure, const JobSpec& job, const choice::LayoutChoice& choice,
                const memory::MemoryEstimate& fullest) {
  switch (figure) {
    case MemoryFigure::kReserved: return fullest.reserved_bytes;
    case MemoryFigure::kAllocated: return fullest.allocated_bytes;
    case MemoryFigure::kReservedFirstStage:
      return memory::estimate_memory(job, choice, cost::layer_bytes(job, choice), 0).reserved_bytes;
    case MemoryFigure::kAllocatedLastStage:
      return memory::estimate_memory(job, choice, cost::layer_bytes(job, choice),
                                     choice.pipeline - 1)
          .allocated_bytes;
    case MemoryFigure::kStatesFirstStage: {
      const memory::MemoryEstimate first =
          memory::estimate_memory(job, choice, cost::layer_bytes(job, choice), 0);
      double bytes = 0;
      for (memory::Term term :
           {memory::Term::kWeights, memory::Term::kGradients, memory::Term::kMasterWeights,
            memory::Term::kMomentum, memory::Term::kVariance, memory::Term::kActivations,
            memory::Term::kCheckpoints, memory::Term::kEmbeddingActivations}) {
        bytes += first[term];
      }
      return bytes;
    }
    // A cluster's reserved_memory stands for the context that the device counts too.
    case MemoryFigure::kDevice:
    case MemoryFigure::kNone: break;
  }
  return fullest.peak_bytes + double(job.cluster.reserved_bytes);
}

// Recomputes all layers; or, in frameworks that can, the fewest of each stage with which the run
// fits, as one tunes a layout by hand. Where none gives a margin, a tight run will do.
Predicted recompute_fewest(PublishedRun& run, RunCells& cells) {
  run.choice.recompute = Recompute::kFull;
  const int64_t most = choice::stage_layers(run.choice, model::block_count(run.job.model), 0);
  const bool some = framework::framework_of(run.job).usual.recomputes_fewest_layers;
  for (const prediction::Fit wanted : {prediction::Fit::kFits, prediction::Fit::kTight}) {
    for (int64_t layers = 1; some && layers < most; ++layers) {
      run.choice.recompute_layers = static_cast<int32_t>(layers);
      const Predicted predicted = predict(run.job, run.choice);
      if (predicted.fit != wanted) continue;
      cells.assume(fmt::format(
          "full recomputation of {} of the {} layers of a stage, because the run does not fit "
          "without it",
          layers, most));
      return predicted;
    }
  }
  run.choice.recompute_layers = -1;
  cells.assume("full recomputation, because the run does not fit without it");
  return predict(run.job, run.choice);
}

// Returns the floating-point operations of a step.
double predict_row(RowScore& row, PublishedRun& run, RunCells& cells) {
  if (!run.layout_is_published) {
    choose_layout(run);
    cells.assume(
        fmt::format("no layout is published: the fastest that fits, tp {} zero3 over {}, "
                    "micro batch {}, recompute {}",
                    run.choice.tensor, run.choice.shard, run.choice.micro_batch,
                    run.choice.recompute == Recompute::kNone ? "none" : "full"));
  }
  Predicted predicted = predict(run.job, run.choice);
  if (!run.sharding_is_published && predicted.fit == prediction::Fit::kNo &&
      run.choice.data() > 1 && run.choice.sharding == Sharding::kNone) {
    run.choice.sharding = Sharding::kOptimizerState;
    run.choice.shard = static_cast<int32_t>(run.choice.data());
    run.choice.replica = 1;
    predicted = predict(run.job, run.choice);
    cells.assume("sharded optimizer state, because the run does not fit without it");
  }
  if (!run.recompute_is_published && predicted.fit == prediction::Fit::kNo) {
    predicted = recompute_fewest(run, cells);
  }
  const double bytes = bytes_of(run.figure, run.job, run.choice, predicted.memory);
  const prediction::Range memory = prediction::memory_range(run.job, run.choice, predicted.memory);
  const prediction::Range time = prediction::time_range(run.job, run.choice, predicted.time);
  row.predicted_peak_gib = bytes / kGiB;
  row.low_gib = row.predicted_peak_gib * memory.low / predicted.memory.peak_bytes;
  row.high_gib = row.predicted_peak_gib * memory.high / predicted.memory.peak_bytes;
  row.fit = predicted.fit;
  row.predicted_step_s = predicted.time.step_s;
  row.step_low_s = time.low;
  row.step_high_s = time.high;
  row.tokens_per_step = double(run.choice.data()) * run.choice.micro_batch *
                        run.choice.microbatches * double(run.job.training.sequence_length) /
                        double(run.choice.world());
  return predicted.time.model_flops;
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, "; "));
}

// The row as a run of this framework. `offered`: whether the framework offers its layout.
RowScore score_as(RunCells cells, KnownClusters& clusters, const FrameworkChoice& framework,
                  bool& offered) {
  RowScore row;
  row.id = cells.text("id");
  PublishedRun run = published_run(cells, clusters, framework);
  row.left_out = run.left_out;
  row.group = fmt::format("{} on {} x {}", cells.text("model"), run.choice.world(),
                          run.job.cluster.accelerator);
  row.expressible = cells.problems.empty();
  if (!row.expressible) {
    row.reason = joined(cells.problems);
    return row;
  }
  const double model_flops = predict_row(row, run, cells);
  offered = prediction::offers(framework.habits->offers, run.choice);
  row.reason = joined(cells.assumptions);
  const Measurement measured = measurement_of(cells, run, model_flops);
  if (run.figure != MemoryFigure::kNone) row.measured_peak_gib = measured.peak_gib;
  row.measured_step_s = measured.step_s;
  row.measured_fits = measured.fits;
  return row;
}

// A run whose framework nobody names: the medians of those that offer its layout, and the range
// over all of them.
RowScore score_as_unknown(const RunCells& cells, KnownClusters& clusters) {
  std::vector<RowScore> rows;
  std::vector<std::string> names;
  std::optional<RowScore> refused;  // the first, and rather by a row that cannot be expressed
  for (const FrameworkChoice& framework : framework::possible_frameworks()) {
    bool offered = false;
    RowScore row = score_as(cells, clusters, framework, offered);
    if (!offered) {
      if (!refused || (refused->expressible && !row.expressible)) refused = std::move(row);
      continue;
    }
    names.push_back(framework.name);
    rows.push_back(std::move(row));
  }
  if (rows.empty()) {
    if (refused->expressible) refused->reason = "no shipped framework offers the layout";
    refused->expressible = false;
    return *refused;
  }
  RowScore row = prediction::median_of(rows, &RowScore::predicted_step_s);
  const RowScore& by_memory = prediction::median_of(rows, &RowScore::predicted_peak_gib);
  row.predicted_peak_gib = by_memory.predicted_peak_gib;
  row.measured_peak_gib = by_memory.measured_peak_gib;
  row.low_gib = by_memory.low_gib;
  row.high_gib = by_memory.high_gib;
  for (const RowScore& one : rows) {
    row.low_gib = std::min(row.low_gib, one.low_gib);
    row.high_gib = std::max(row.high_gib, one.high_gib);
    row.step_low_s = std::min(row.step_low_s, one.step_low_s);
    row.step_high_s = std::max(row.step_high_s, one.step_high_s);
  }
  row.fit = prediction::fit_in_all(rows, &RowScore::fit);
  if (!row.reason.empty()) row.reason += "; ";
  row.reason += fmt::format("unknown framework: priced as {}", fmt::join(names, ", "));
  return row;
}

RowScore score_row(const CsvTable& table, const CsvRow& cells_of_row, KnownClusters& clusters,
                   const std::optional<FrameworkChoice>& framework) {
  const RunCells cells(table, cells_of_row);
  const FrameworkChoice own =
      framework ? *framework : framework::framework_named(framework_of_run(cells));
  if (framework::is_unknown(own)) return score_as_unknown(cells, clusters);
  bool offered = false;
  return score_as(cells, clusters, own, offered);
}

FileScore score(const CsvTable& table, const std::optional<FrameworkChoice>& framework) {
  require_columns(table);
  FileScore file;
  file.path = table.path;
  KnownClusters clusters;
  for (const CsvRow& row : table.rows) {
    file.rows.push_back(score_row(table, row, clusters, framework));
  }
  file.summary = summary_of(file.rows);
  return file;
}

}  // namespace

FileScore score_file(const std::string& path, const std::optional<FrameworkChoice>& framework) {
  return score(load_csv(path), framework);
}

FileScore score_table(const std::string& path, const std::string& text,
                      const std::optional<FrameworkChoice>& framework) {
  return score(parse_csv(path, text), framework);
}

}  // namespace smp::published
