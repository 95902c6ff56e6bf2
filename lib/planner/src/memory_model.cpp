#include "smp/planner/memory_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "engine_bytes.h"
#include "memory_terms.h"
#include "resolve.h"
#include "smp/plan/check.h"
#include "smp/plan/layout.h"
#include "smp/plan/parameter_counts.h"
#include "smp/plan/schedule.h"
#include "smp/planner/layer_bytes.h"
#include "smp/planner/memory_estimate.h"
#include "smp/planner/terms.h"
#include "smp/planner/units.h"
#include "stage_blocks.h"
#include "stage_terms.h"
#include "walked_stage.h"

namespace smp {
namespace {

// The peak of 1F1B is reached once the pipeline is full, so more microbatches than that need no
// walk.
ScheduleParameters walked_schedule(const Plan& plan) {
  ScheduleParameters parameters = schedule_parameters(plan);
  ScheduleShape& shape = parameters.shape;
  if (shape.kind == PipelineKind::kInterleaved) {
    shape.microbatches = std::min(shape.microbatches, shape.stages + 2);
  }
  return parameters;
}

// Our engine's ranks on CPUs: states from the layout, to the byte.
RankPrediction predict_on_cpu(const Plan& plan, const RankLayout& layout,
                              const ActivationPeaks& peaks, std::vector<PhasePeak>& phases) {
  const int64_t blocks =
      std::count_if(layout.layers.begin(), layout.layers.end(),
                    [](const LayerSpec& layer) { return is_transformer_block(layer.kind); });
  RankPrediction best;
  const auto consider = [&](const char* phase, const ActivationBytes& now) {
    Terms terms, host;
    add_states(terms, host, plan, layout);
    add_working_set(terms, plan, layout);
    add_activations(terms, plan, now, std::string_view(phase) == "forward");
    add_constants(terms, plan, layout.rank, blocks);
    phases.push_back({phase, terms.total()});
    if (terms.total() > best.peak_bytes) {
      best.peak_bytes = terms.total();
      best.peak_phase = phase;
      best.terms = terms.take();
      best.host_bytes = host.total() + peaks.host_bytes;
    }
  };
  consider("forward", peaks.forward);
  consider("backward", peaks.backward);
  consider("step", peaks.step);
  return best;
}

StageHolds holds_of(const RankLayout& layout, const ModelSpec& model) {
  StageHolds holds;
  for (const LayerSpec& layer : layout.layers) {
    const bool experts =
        layer.kind == LayerKind::kMoeBlock ||
        (layer.kind == LayerKind::kMtpBlock && has_experts(model, model.num_layers - 1));
    holds.embedding |= layer.kind == LayerKind::kEmbedding;
    holds.head |= makes_loss(layer.kind);
    if (!is_transformer_block(layer.kind)) continue;
    const bool cross = layer.kind == LayerKind::kCrossBlock;
    ++(experts ? holds.blocks.moe : cross ? holds.blocks.cross : holds.blocks.dense);
  }
  return holds;
}

// Adds what the walk found at an instant.
void add_walked(TermBytes& bytes, const ActivationBytes& now, const Plan& plan, bool forward,
                double blocks) {
  const auto real = [](int64_t count) { return static_cast<double>(count); };
  at(bytes, Term::kActivations) += real(now.blocks.bytes);
  at(bytes, Term::kCheckpoints) += real(now.checkpoints.bytes);
  at(bytes, Term::kEmbeddingActivations) += real(now.embedding.bytes);
  const bool makes_loss = forward && now.running == RunningLayer::kHead;
  at(bytes, Term::kLogits) += real(now.head.bytes + (makes_loss ? now.transient : 0));
  at(bytes, Term::kRecomputed) += real(now.again);
  at(bytes, Term::kWorkspace) += real(now.gradients + (makes_loss ? 0 : now.transient - now.again));
  at(bytes, Term::kMessages) += real(now.messages);
  at(bytes, Term::kBatch) += real(now.data);
  if (!offloads(plan) || blocks == 0) return;
  const LayoutChoice choice = nearest_choice_of(plan);
  at(bytes, Term::kOffloadWindow) =
      offload_window(plan.job, choice, layer_bytes(plan.job, choice), blocks);
}

// The named terms of terms.h, with activations as the walk found them.
RankPrediction predict_on_accelerator(const Plan& plan, const RankLayout& layout,
                                      const ActivationPeaks& peaks,
                                      std::vector<PhasePeak>& phases) {
  const LayoutChoice choice = nearest_choice_of(plan);
  const StageHolds holds = holds_of(layout, plan.job.model);
  const LayerBytes layers = layer_bytes(plan.job, choice);
  const StateRules rules(plan.job, choice);
  const StageTerms terms = stage_terms(plan.job, choice, layers, rules, holds);
  const double blocks = holds.blocks.all();
  TermBytes best{};
  PeakPhase best_phase = PeakPhase::kStep;
  const auto consider = [&](PeakPhase phase, TermBytes bytes) {
    add_fragmentation(bytes, plan.job, phase);
    phases.push_back({std::string(name_of(phase)), whole_bytes(total(bytes))});
    if (total(bytes) <= total(best)) return;
    best = bytes;
    best_phase = phase;
  };
  TermBytes forward = terms.bytes(PeakPhase::kForward, rules);
  add_walked(forward, peaks.forward, plan, true, blocks);
  consider(PeakPhase::kForward, forward);
  TermBytes backward = terms.bytes(PeakPhase::kBackward, rules);
  add_walked(backward, peaks.backward, plan, false, blocks);
  consider(PeakPhase::kBackward, backward);
  consider(PeakPhase::kStep, terms.bytes(PeakPhase::kStep, rules));
  consider(PeakPhase::kCheckpoint, terms.bytes(PeakPhase::kCheckpoint, rules));

  RankPrediction rank;
  rank.peak_phase = name_of(best_phase);
  const double live = microbatches_in_flight(choice, layout.coord.pipeline);
  rank.host_bytes = whole_bytes(std::ceil(
      terms.host_bytes +
      (choice.offload_activations ? live * blocks_kept(choice, layers, holds.blocks).all() : 0)));
  for (int i = 0; i < kTerms; ++i) {
    const Term term = static_cast<Term>(i);
    const int64_t bytes = whole_bytes(at(best, term));
    if (bytes == 0) continue;
    rank.peak_bytes += bytes;
    rank.terms.push_back({std::string(name_of(term)), category_of(term), bytes,
                          formula_of(term, plan.job, choice, layers, holds, live),
                          fmt::format("{}: {}", name_of(trust_of(term)), source_of(term))});
  }
  return rank;
}

RankPrediction predict_class(const Plan& plan, const RankLayout& layout,
                             const ActivationPeaks& peaks, std::vector<PhasePeak>& phases) {
  RankPrediction rank = on_cpu(plan) ? predict_on_cpu(plan, layout, peaks, phases)
                                     : predict_on_accelerator(plan, layout, peaks, phases);
  rank.stage = layout.coord.pipeline;
  rank.tensor = layout.coord.tensor;
  return rank;
}

RankLayout layout_of(const Plan& plan, int64_t stage, int64_t tensor) {
  const Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  return rank_layout(plan, mesh.rank_of({.pipeline = stage, .tensor = tensor}));
}

}  // namespace

// What does not depend on the sharding: the schedule, the layer table of each tensor rank, and the
// walk of each class, made when first asked for.
struct MemoryModel::Walks {
  explicit Walks(const Plan& plan)
      : parameters(walked_schedule(plan)), schedule(make_schedule(parameters)) {}

  const ActivationPeaks& of(const Plan& plan, const RankLayout& layout) {
    const std::pair key{layout.coord.pipeline, layout.coord.tensor};
    const auto known = peaks.find(key);
    if (known != peaks.end()) return known->second;
    // On accelerators the ranks of a tensor group are alike.
    const int64_t rank = on_cpu(plan) ? key.second : 0;
    auto table = tables.find(rank);
    if (table == tables.end()) table = tables.emplace(rank, walked_layers(plan, rank)).first;
    const WalkedStage stage = walked_stage(plan, layout, table->second, parameters);
    const auto& actions = schedule.actions.at(static_cast<size_t>(key.first));
    return peaks[key] = walk_activations(actions, stage);
  }

  ScheduleParameters parameters;
  Schedule schedule;
  std::map<int64_t, std::vector<WalkedLayer>> tables;  // by tensor rank
  std::map<std::pair<int64_t, int64_t>, ActivationPeaks> peaks;
};

MemoryModel::MemoryModel(const Plan& plan) : walks_(std::make_unique<Walks>(plan)) {}
MemoryModel::~MemoryModel() = default;

RankPrediction MemoryModel::predict(const Plan& plan, int64_t stage, int64_t tensor) {
  std::vector<PhasePeak> phases;
  const RankLayout layout = layout_of(plan, stage, tensor);
  return predict_class(plan, layout, walks_->of(plan, layout), phases);
}

std::vector<PhasePeak> MemoryModel::phases(const Plan& plan, int64_t stage, int64_t tensor) {
  std::vector<PhasePeak> phases;
  const RankLayout layout = layout_of(plan, stage, tensor);
  predict_class(plan, layout, walks_->of(plan, layout), phases);
  return phases;
}

BytesPerParameter bytes_per_parameter(const JobSpec& job) {
  const auto with_adam = [&] {
    switch (*job.training.precision) {
      case Precision::kFp32: return kFp32;
      case Precision::kFp64: return kFp64;
      case Precision::kBf16:
      case Precision::kFp8: return kBf16;
      case Precision::kFp16: return runs_in_engine(job) ? kBf16 : kAmpAdam;
    }
    check_failed(__FILE__, __LINE__, "unknown precision");
  };
  BytesPerParameter bytes = with_adam();
  const OptimizerSpec& optimizer = job.training.optimizer;
  if (optimizer.kind == OptimizerKind::kSgd) {
    bytes.variance = 0;
    if (optimizer.momentum == 0) bytes.momentum = 0;
  }
  return bytes;
}

RankPrediction predict_memory(const Plan& plan, int64_t stage, int64_t tensor) {
  return MemoryModel(plan).predict(plan, stage, tensor);
}

std::vector<RankPrediction> predict_memory(const Plan& plan) {
  MemoryModel model(plan);
  std::vector<RankPrediction> classes;
  for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
    for (int64_t tensor = 0; tensor < plan.degrees.tensor; ++tensor) {
      classes.push_back(model.predict(plan, stage, tensor));
    }
  }
  return classes;
}

int64_t allowed_bytes(const ClusterSpec& cluster) {
  if (cluster.memory_per_process_bytes == 0) return std::numeric_limits<int64_t>::max();
  return cluster.memory_per_process_bytes - cluster.reserved_bytes;
}

}  // namespace smp
