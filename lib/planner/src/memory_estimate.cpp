#include "smp/planner/memory_estimate.h"

#include <algorithm>

#include "smp/plan/check.h"
#include "smp/planner/habits.h"
#include "stage_blocks.h"
#include "stage_terms.h"

namespace smp {
namespace {

constexpr double kTokenBytes = 8;  // int64 ids

// Keeps the fullest of the phases that it is shown.
class Fullest {
 public:
  explicit Fullest(const JobSpec& job) : job_(job) {}

  void consider(Phase phase, TermBytes bytes) {
    add_fragmentation(bytes, job_);
    const double peak = total(bytes);
    if (peak <= estimate_.peak_bytes) return;
    estimate_.peak_bytes = peak;
    estimate_.bytes = bytes;
    estimate_.phase = phase;
  }

  MemoryEstimate take(int64_t stage, double host_bytes) {
    estimate_.stage = static_cast<int32_t>(stage);
    estimate_.host_bytes = host_bytes;
    estimate_.reserved_bytes =
        estimate_.peak_bytes - estimate_[Term::kContext] - estimate_[Term::kCommunicators];
    estimate_.allocated_bytes = estimate_.reserved_bytes - estimate_[Term::kFragmentation];
    return estimate_;
  }

 private:
  const JobSpec& job_;
  MemoryEstimate estimate_;
};

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kStep: return "step";
    case Phase::kCheckpoint: return "checkpoint";
  }
  check_failed(__FILE__, __LINE__, "unknown phase");
}

MemoryEstimate estimate_memory(const JobSpec& job, const LayoutChoice& choice,
                               const LayerBytes& layers, int64_t stage) {
  const StageHolds holds = stage_holds(job.model, choice, stage);
  const StageTerms terms = stage_terms(job, choice, layers, holds);
  BlocksKept blocks = blocks_kept(choice, layers, holds.blocks);
  const double live = microbatches_in_flight(choice, stage);
  // A head's backward follows its forward, but where all forward passes come first.
  const double heads = !holds.head ? 0 : choice.schedule == PipelineKind::kSimple ? live : 1;
  const double boundary = layers.embedding.output;
  // Each chunk of layers receives its input and sends its output, but the model's first and last.
  const double chunks = choice.pipeline > 1 ? choice.virtual_stages : 1;
  const bool frees = habits_of(job).frees_sent_outputs && job.cluster.device != DeviceKind::kCpu;
  if (frees) blocks.kept -= (chunks - (holds.head ? 1 : 0)) * boundary;

  double host = terms.host_bytes;
  TermBytes working = terms.working;
  if (choice.offload_activations) {
    host += live * blocks.all();
    at(working, Term::kOffloadWindow) =
        offload_window(job, choice, layers, holds.blocks.dense + holds.blocks.moe);
    blocks.kept = blocks.checkpoints = 0;
  }
  at(working, Term::kActivations) = live * blocks.kept;
  at(working, Term::kCheckpoints) = live * blocks.checkpoints;
  if (holds.embedding) at(working, Term::kEmbeddingActivations) = live * layers.embedding.saved;
  at(working, Term::kBatch) = ((holds.embedding ? live : 0) + heads) * kTokenBytes *
                              choice.micro_batch *
                              static_cast<double>(job.training.sequence_length) / choice.context;
  // Inputs that were received, and one gradient that is still being sent.
  const double received = (chunks - (holds.embedding ? 1 : 0)) * live;
  at(working, Term::kMessages) = (received + (holds.embedding ? 0 : 1)) * boundary;

  Fullest fullest(job);
  TermBytes now = working;
  if (holds.head) {
    at(now, Term::kLogits) = (heads - 1) * layers.head.saved + layers.head.forward;
    fullest.consider(Phase::kForward, now);
    now = working;
    at(now, Term::kLogits) = heads * layers.head.saved;
    at(now, Term::kWorkspace) += layers.head.workspace;
    fullest.consider(Phase::kBackward, now);
    now = working;
    at(now, Term::kLogits) = (heads - 1) * layers.head.saved;
    at(now, Term::kWorkspace) += layers.head.input_gradient;
  } else {
    at(now, Term::kWorkspace) += blocks.forward;
    fullest.consider(Phase::kForward, now);
    now = working;
    at(now, Term::kMessages) += boundary;
  }
  at(now, Term::kRecomputed) = blocks.again;
  at(now, Term::kWorkspace) += blocks.workspace;
  fullest.consider(Phase::kBackward, now);
  fullest.consider(Phase::kStep, terms.step);
  fullest.consider(Phase::kCheckpoint, terms.saving);
  return fullest.take(stage, host);
}

MemoryEstimate estimate_memory(const JobSpec& job, const LayoutChoice& choice,
                               const LayerBytes& layers) {
  MemoryEstimate fullest = estimate_memory(job, choice, layers, 0);
  const auto consider = [&](int64_t stage) {
    const MemoryEstimate other = estimate_memory(job, choice, layers, stage);
    if (other.peak_bytes > fullest.peak_bytes) fullest = other;
  };
  // Stages in the middle have ever fewer microbatches and never more layers than the second.
  if (choice.pipeline > 2) consider(1);
  if (choice.pipeline > 1) consider(choice.pipeline - 1);
  return fullest;
}

}  // namespace smp
