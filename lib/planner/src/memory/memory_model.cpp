#include "smp/planner/memory/memory_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "choice/resolve.h"
#include "cost/in_engine.h"
#include "memory/held_bytes.h"
#include "memory/memory_terms.h"
#include "memory/message_buffers.h"
#include "memory/stage_blocks.h"
#include "memory/stage_terms.h"
#include "memory/walked_stage.h"
#include "smp/plan/base/check.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/text/units.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/memory/memory_estimate.h"
#include "smp/planner/memory/terms.h"

namespace smp::memory {
namespace {

// On accelerators the walk takes the passes, the messages between stages and the step; buckets,
// recomputing and offloading are in its layers.
schedule::ScheduleParameters parameters_on_accelerator(
    const Plan& plan, const std::vector<layout::StageLayers>& stages) {
  schedule::ScheduleParameters parameters;
  parameters.shape = layout::schedule_shape(plan);
  parameters.tied_across_stages = layout::tied_across_stages(plan);
  for (const layout::StageLayers& stage : stages) {
    std::vector<std::vector<int64_t>>& chunks = parameters.layers.emplace_back();
    auto layer = stage.layers.begin();
    for (const int64_t count : stage.chunk_layers) {
      std::vector<int64_t>& layers = chunks.emplace_back();
      for (int64_t i = 0; i < count; ++i) layers.push_back((layer++)->index);
      parameters.head_layer = std::max(parameters.head_layer, layers.back());
    }
  }
  return parameters;
}

// The peak of 1F1B is reached once the pipeline is full, so more microbatches than that need no
// walk.
schedule::ScheduleParameters walked_schedule(const Plan& plan,
                                             const std::vector<layout::StageLayers>& stages) {
  schedule::ScheduleParameters parameters =
      on_cpu(plan) ? layout::schedule_parameters(plan) : parameters_on_accelerator(plan, stages);
  schedule::ScheduleShape& shape = parameters.shape;
  if (shape.kind == PipelineKind::kInterleaved) {
    shape.microbatches = std::min(shape.microbatches, shape.stages + 2);
  }
  return parameters;
}

// Our engine's ranks on CPUs: states from the layout, to the byte.
RankPrediction predict_on_cpu(const Plan& plan, const layout::RankLayout& layout,
                              const cost::ActivationPeaks& peaks, std::vector<PhasePeak>& phases) {
  const int64_t blocks = std::count_if(
      layout.layers.begin(), layout.layers.end(),
      [](const model::LayerSpec& layer) { return model::is_transformer_block(layer.kind); });
  RankPrediction best;
  const auto consider = [&](const char* phase, const cost::ActivationBytes& now) {
    Terms terms, host;
    add_states(terms, host, plan, layout);
    add_working_set(terms, plan, layout);
    add_activations(terms, plan, now, std::string_view(phase) == "forward");
    add_read_ahead(terms, plan, layout);
    add_constants(terms, plan, layout.rank, blocks);
    phases.push_back({phase, terms.total(), terms.list()});
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

// Adds what the walk found at an instant.
void add_walked(TermBytes& bytes, const cost::ActivationBytes& now, const SizedPlan& sized,
                bool forward, double blocks) {
  const auto real = [](int64_t count) { return static_cast<double>(count); };
  at(bytes, Term::kActivations) += real(now.blocks.bytes);
  at(bytes, Term::kCheckpoints) += real(now.checkpoints.bytes);
  at(bytes, Term::kEmbeddingActivations) += real(now.embedding.bytes);
  const bool makes_loss = forward && now.running == cost::RunningLayer::kHead;
  at(bytes, Term::kLogits) += real(now.head.bytes + (makes_loss ? now.transient : 0));
  at(bytes, Term::kRecomputed) += real(now.again);
  at(bytes, Term::kWorkspace) += real(now.gradients + (makes_loss ? 0 : now.transient - now.again));
  at(bytes, Term::kMessages) += real(now.messages);
  at(bytes, Term::kBatch) += real(now.data);
  if (!offloads(sized.plan) || blocks == 0) return;
  at(bytes, Term::kOffloadWindow) =
      offload_window(sized.plan.job, sized.choice, sized.bytes, blocks);
}

PhasePeak phase_peak(PeakPhase phase, const TermBytes& bytes) {
  PhasePeak peak{std::string(name_of(phase)), 0, {}};
  for (int i = 0; i < kTerms; ++i) {
    const Term term = static_cast<Term>(i);
    const int64_t whole = text::whole_bytes(at(bytes, term));
    if (whole == 0) continue;
    peak.bytes += whole;
    peak.terms.push_back({std::string(name_of(term)), category_of(term), whole, "", ""});
  }
  return peak;
}

// The named terms of terms.h, with activations as the walk found them.
RankPrediction predict_on_accelerator(const SizedPlan& sized, const WalkedRank& place,
                                      const cost::ActivationPeaks& peaks,
                                      std::vector<PhasePeak>& phases) {
  const Plan& plan = sized.plan;
  const choice::LayoutChoice& choice = sized.choice;
  const cost::LayerBytes& layers = sized.bytes;
  const cost::StageHolds holds = cost::stage_holds(*layers.kinds, place.held);
  const StateRules rules(plan.job, choice);
  const StageTerms terms = stage_terms(plan.job, choice, layers, rules, holds,
                                       message_buffers(plan.job, choice, layers, holds));
  const double blocks = holds.all_blocks();
  TermBytes best{};
  PeakPhase best_phase = PeakPhase::kStep;
  const double could_hold = microbatches_in_flight(choice, place.stage) * blocks * layers.held;
  const auto consider = [&](PeakPhase phase, TermBytes bytes) {
    if (phase == PeakPhase::kForward || phase == PeakPhase::kBackward) {
      const double outside = at(bytes, Term::kContext) + at(bytes, Term::kCommunicators);
      const double needed = outside + (total(bytes) - outside) * (1 + rules.fragmentation(phase));
      at(bytes, Term::kWorkspace) +=
          held_bytes(could_hold, needed, static_cast<double>(allowed_bytes(plan.job.cluster)));
    }
    add_fragmentation(bytes, rules.fragmentation(phase));
    phases.push_back(phase_peak(phase, bytes));
    if (total(bytes) <= total(best)) return;
    best = bytes;
    best_phase = phase;
  };
  TermBytes forward = terms.bytes(PeakPhase::kForward, rules);
  add_walked(forward, peaks.forward, sized, true, blocks);
  consider(PeakPhase::kForward, forward);
  TermBytes backward = terms.bytes(PeakPhase::kBackward, rules);
  add_walked(backward, peaks.backward, sized, false, blocks);
  consider(PeakPhase::kBackward, backward);
  consider(PeakPhase::kStep, terms.bytes(PeakPhase::kStep, rules));
  consider(PeakPhase::kCheckpoint, terms.bytes(PeakPhase::kCheckpoint, rules));

  RankPrediction rank;
  rank.peak_phase = name_of(best_phase);
  const double live = microbatches_in_flight(choice, place.stage);
  rank.host_bytes = text::whole_bytes(std::ceil(
      terms.host_bytes +
      (choice.offload_activations ? live * blocks_kept(choice, layers, holds).all() : 0)));
  for (int i = 0; i < kTerms; ++i) {
    const Term term = static_cast<Term>(i);
    const int64_t bytes = text::whole_bytes(at(best, term));
    if (bytes == 0) continue;
    rank.peak_bytes += bytes;
    rank.terms.push_back({std::string(name_of(term)), category_of(term), bytes,
                          formula_of(term, plan.job, choice, layers, holds, live),
                          fmt::format("{}: {}", name_of(trust_of(term)), source_of(term))});
  }
  return rank;
}

}  // namespace

// What the ranks of a plan have in common, and the classes of ranks that were predicted.
struct MemoryModel::State {
  struct Class {
    RankPrediction rank;
    std::vector<PhasePeak> phases;
  };

  explicit State(const Plan& of)
      : sized{of, choice::choice_of(of), {}},
        stages(layout::layers_by_stage(of)),
        parameters(walked_schedule(of, stages)),
        schedule(schedule::make_schedule(parameters)) {
    sized.bytes = cost::layer_bytes(of.job, sized.choice);
  }

  const Class& class_of(int64_t stage, int64_t tensor) {
    const bool cpu = on_cpu(sized.plan);
    // On accelerators the ranks of a tensor group are alike but for their parts of a tied table.
    const std::pair key{stage, cpu ? tensor : tied_bytes(sized.plan, stage, tensor)};
    const auto known = classes.find(key);
    if (known != classes.end()) return known->second;
    const WalkedRank place{stage, tensor, stages.at(static_cast<size_t>(stage))};
    auto table = tables.find(cpu ? tensor : 0);
    if (table == tables.end()) {
      const int64_t rank = cpu ? tensor : 0;
      table = tables.emplace(rank, walked_layers(sized, rank)).first;
    }
    const auto& actions = schedule.actions.at(static_cast<size_t>(stage));
    const cost::ActivationPeaks peaks =
        cost::walk_activations(actions, walked_stage(sized, place, table->second, parameters));
    Class& made = classes[key];
    made.rank = cpu ? predict_on_cpu(sized.plan, layout_of(place), peaks, made.phases)
                    : predict_on_accelerator(sized, place, peaks, made.phases);
    made.rank.stage = stage;
    return made;
  }

  layout::RankLayout layout_of(const WalkedRank& place) const {
    const Plan& plan = sized.plan;
    const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
    return layout::rank_layout(plan,
                               mesh.rank_of({.pipeline = place.stage, .tensor = place.tensor}));
  }

  SizedPlan sized;
  std::vector<layout::StageLayers> stages;
  schedule::ScheduleParameters parameters;
  schedule::Schedule schedule;
  std::map<int64_t, std::vector<cost::WalkedLayer>> tables;  // by tensor rank
  std::map<std::pair<int64_t, int64_t>, Class> classes;
};

MemoryModel::MemoryModel(const Plan& plan) : state_(std::make_unique<State>(plan)) {}
MemoryModel::~MemoryModel() = default;

RankPrediction MemoryModel::predict(int64_t stage, int64_t tensor) {
  RankPrediction rank = state_->class_of(stage, tensor).rank;
  rank.tensor = tensor;
  return rank;
}

std::vector<PhasePeak> MemoryModel::phases(int64_t stage, int64_t tensor) {
  return state_->class_of(stage, tensor).phases;
}

RankPrediction predict_memory(const Plan& plan, int64_t stage, int64_t tensor) {
  return MemoryModel(plan).predict(stage, tensor);
}

std::vector<RankPrediction> predict_memory(const Plan& plan) {
  MemoryModel model(plan);
  std::vector<RankPrediction> classes;
  for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
    for (int64_t tensor = 0; tensor < plan.degrees.tensor; ++tensor) {
      classes.push_back(model.predict(stage, tensor));
    }
  }
  return classes;
}

int64_t allowed_bytes(const ClusterSpec& cluster) {
  if (cluster.memory_per_process_bytes == 0) return std::numeric_limits<int64_t>::max();
  return cluster.memory_per_process_bytes - cluster.reserved_bytes;
}

}  // namespace smp::memory
