#include "memory/memory_estimator.h"

#include <algorithm>

#include "cost/in_engine.h"
#include "memory/held_bytes.h"
#include "memory/message_buffers.h"
#include "memory/stage_blocks.h"
#include "smp/plan/base/check.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::memory {
namespace {

constexpr double kTokenBytes = 8;  // int64 ids

// A stage at its fullest: the phase, and what activations add to each term then. The terms of its
// states must outlive it.
struct StagePeak {
  StagePeak(const choice::LayoutChoice& choice, const cost::LayerBytes& layers,
            const StageTerms& states, const EstimatedStage& stage)
      : terms(&states), blocks(blocks_kept(choice, layers, stage.holds)), live(stage.live) {}

  const StageTerms* terms;
  BlocksKept blocks;
  double live;
  double peak = 0;      // without fragmentation
  double reserved = 0;  // with it
  PeakPhase phase = PeakPhase::kStep;
  double embedding = 0, logits = 0, workspace = 0, again = 0, messages = 0, batch = 0, window = 0;
  double host_bytes = 0;
};

StagePeak peak_of(const JobSpec& job, const choice::LayoutChoice& choice,
                  const cost::LayerBytes& layers, const StateRules& rules, const StageTerms& terms,
                  const EstimatedStage& stage) {
  const cost::StageHolds& holds = stage.holds;
  StagePeak now(choice, layers, terms, stage);
  now.host_bytes = terms.host_bytes;
  // A head's backward follows its forward, but where all forward passes come first.
  const double heads = !holds.head ? 0 : choice.schedule == PipelineKind::kSimple ? now.live : 1;
  const double boundary = layers.boundary;
  // Each chunk of layers receives its input and sends its output, but the model's first and last.
  const double chunks = choice.pipeline > 1 ? choice.virtual_stages : 1;
  const double freed = freed_outputs(job, choice, holds.head, now.live) * boundary / now.live;
  (now.blocks.kept > 0 ? now.blocks.kept : now.blocks.checkpoints) -= freed;
  if (choice.offload_activations) {
    now.host_bytes += now.live * now.blocks.all();
    now.window = offload_window(job, choice, layers, holds.all_blocks());
    now.blocks.kept = now.blocks.checkpoints = 0;
  }
  if (holds.embedding) now.embedding = now.live * layers.embedding().call.saved;
  now.batch = ((holds.embedding ? now.live : 0) + heads) * kTokenBytes * choice.micro_batch *
              static_cast<double>(job.training.sequence_length) / choice.context;
  // Inputs that were received, and one gradient that is still being sent.
  const double received = (chunks - (holds.embedding ? 1 : 0)) * now.live;
  const double messages = (received + (holds.embedding ? 0 : 1)) * boundary;
  const double working = terms.total(PeakPhase::kForward) + now.live * now.blocks.all() +
                         now.window + now.embedding + now.batch + messages;

  const double outside = rules.context + terms.communicators;  // of the allocator
  const double in_use = 1 + rules.fragmentation(PeakPhase::kBackward);
  const auto highest = [&](PeakPhase phase, double peak, double share) {
    const double reserved = outside + (peak - outside) * share;
    if (reserved <= now.reserved) return false;
    now.reserved = reserved;
    now.peak = peak;
    now.phase = phase;
    return true;
  };
  const auto consider = [&](PeakPhase phase, double logits, double again, double workspace,
                            double sent) {
    if (!highest(phase, working + (logits + again) + (workspace + sent), in_use)) return;
    now.logits = logits;
    now.again = again;
    now.workspace = workspace;
    now.messages = messages + sent;
  };
  const double others = holds.head ? (heads - 1) * layers.head().call.saved : 0;
  if (holds.head) {
    consider(PeakPhase::kForward, others + layers.head().call.forward, 0, 0, 0);
    consider(PeakPhase::kBackward, others + layers.head().call.saved, 0,
             layers.head().call.workspace, 0);
  } else {
    consider(PeakPhase::kForward, 0, 0, now.blocks.forward, 0);
  }
  // A stage without the head begins its deepest backward with a gradient that it received.
  consider(PeakPhase::kBackward, others, now.blocks.again,
           now.blocks.workspace + (holds.head ? layers.head().call.input_gradient : 0),
           holds.head ? 0 : boundary);
  if (layers.held > 0) {
    const double held = held_bytes(now.live * holds.all_blocks() * layers.held, now.reserved,
                                   static_cast<double>(allowed_bytes(job.cluster)));
    now.workspace += held;
    now.peak += held;
    now.reserved += held * in_use;
  }
  for (const PeakPhase phase : {PeakPhase::kStep, PeakPhase::kCheckpoint}) {
    highest(phase, terms.total(phase), 1 + rules.fragmentation(phase));
  }
  return now;
}

MemoryEstimate estimate_of(const StagePeak& stage, const StateRules& rules, int64_t index) {
  MemoryEstimate estimate{.bytes = stage.terms->bytes(stage.phase, rules)};
  TermBytes& bytes = estimate.bytes;
  if (stage.phase == PeakPhase::kForward || stage.phase == PeakPhase::kBackward) {
    at(bytes, Term::kActivations) = stage.live * stage.blocks.kept;
    at(bytes, Term::kCheckpoints) = stage.live * stage.blocks.checkpoints;
    at(bytes, Term::kEmbeddingActivations) = stage.embedding;
    at(bytes, Term::kLogits) = stage.logits;
    at(bytes, Term::kRecomputed) = stage.again;
    at(bytes, Term::kWorkspace) += stage.workspace;
    at(bytes, Term::kOffloadWindow) = stage.window;
    at(bytes, Term::kMessages) = stage.messages;
    at(bytes, Term::kBatch) += stage.batch;
  }
  add_fragmentation(bytes, rules.fragmentation(stage.phase));
  estimate.allocated_bytes =
      stage.peak - at(bytes, Term::kContext) - at(bytes, Term::kCommunicators);
  estimate.reserved_bytes = estimate.allocated_bytes + at(bytes, Term::kFragmentation);
  estimate.peak_bytes = stage.peak + at(bytes, Term::kFragmentation);
  estimate.host_bytes = stage.host_bytes;
  estimate.phase = stage.phase;
  estimate.stage = static_cast<int32_t>(index);
  return estimate;
}

}  // namespace

std::string_view name_of(PeakPhase phase) {
  switch (phase) {
    case PeakPhase::kForward: return "forward";
    case PeakPhase::kBackward: return "backward";
    case PeakPhase::kStep: return "step";
    case PeakPhase::kCheckpoint: return "checkpoint";
  }
  check_failed(__FILE__, __LINE__, "unknown phase");
}

MemoryEstimate estimate_memory(const JobSpec& job, const choice::LayoutChoice& choice,
                               const cost::LayerBytes& layers, int64_t stage) {
  const StateRules rules(job, choice);
  EstimatedStage here{stage, cost::stage_holds(*layers.kinds, choice, stage),
                      microbatches_in_flight(choice, stage)};
  here.message_bytes = message_buffers(job, choice, layers, here.holds);
  const StageTerms terms = stage_terms(job, choice, layers, rules, here.holds, here.message_bytes);
  return estimate_of(peak_of(job, choice, layers, rules, terms, here), rules, stage);
}

MemoryEstimate estimate_memory(const JobSpec& job, const choice::LayoutChoice& choice,
                               const cost::LayerBytes& layers) {
  return MemoryEstimator(job).fullest(choice, layers);
}

choice::LayoutChoice MemoryEstimator::key_of(choice::LayoutChoice choice) {
  choice.recompute = Recompute::kNone;
  choice.recompute_layers = -1;
  choice.offload_activations = choice.offload_optimizer = choice.offload_parameters = false;
  return choice;
}

void MemoryEstimator::look_at(const choice::LayoutChoice& choice, const cost::LayerBytes& layers) {
  const choice::LayoutChoice key = key_of(choice);
  if (rules_ && key == key_) return;
  key_ = key;
  rules_.emplace(job_, choice);
  count_ = 0;
  for (const cost::PricedStage& priced : priced_.of(*layers.kinds, choice)) {
    if (count_ == stages_.size()) stages_.emplace_back();
    KnownStage& known = stages_[count_++];
    known.known = 0;
    known.stage.index = priced.index;
    known.stage.holds = priced.holds;
    known.stage.live = microbatches_in_flight(choice, priced.index);
    known.stage.message_bytes = message_buffers(job_, choice, layers, priced.holds);
  }
}

// Of the states: whatever else `choice` recomputes and offloads than key_of() it.
const StageTerms& MemoryEstimator::terms_of(KnownStage& known, const choice::LayoutChoice& choice,
                                            const cost::LayerBytes& layers) const {
  const unsigned place = (choice.offload_optimizer ? 1U : 0U) |
                         (choice.offload_parameters ? 2U : 0U) |
                         (choice.recompute == Recompute::kFull ? 4U : 0U);
  StageTerms& terms = known.terms.at(place);
  if ((known.known >> place & 1U) == 0) {
    terms =
        stage_terms(job_, choice, layers, *rules_, known.stage.holds, known.stage.message_bytes);
    known.known |= 1U << place;
  }
  return terms;
}

MemoryEstimate MemoryEstimator::fullest(const choice::LayoutChoice& choice,
                                        const cost::LayerBytes& layers) {
  look_at(choice, layers);
  const auto peak_at = [&](KnownStage& known) {
    return peak_of(job_, choice, layers, *rules_, terms_of(known, choice, layers), known.stage);
  };
  StagePeak most = peak_at(stages_.front());
  int64_t fullest = 0;
  for (size_t i = 1; i < count_; ++i) {
    const StagePeak peak = peak_at(stages_[i]);
    if (peak.reserved <= most.reserved) continue;
    most = peak;
    fullest = stages_[i].stage.index;
  }
  return estimate_of(most, *rules_, fullest);
}

}  // namespace smp::memory
