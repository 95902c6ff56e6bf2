#include "smp/planner/memory/event_peaks.h"

#include <algorithm>
#include <utility>

#include "choice/resolve.h"
#include "cost/in_engine.h"
#include "cost/routed_tokens.h"
#include "cost/stage_holds.h"
#include "memory/stage_terms.h"
#include "smp/plan/base/check.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/text/units.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::memory {
namespace {

// A second one of each routed token is what the difference of two predictions is divided by.
constexpr int64_t kMoreRouted = 2;

const PhasePeak* phase_of(const std::vector<PhasePeak>& phases, PeakPhase phase) {
  for (const PhasePeak& peak : phases) {
    if (peak.phase == name_of(phase)) return &peak;
  }
  return nullptr;
}

const PhasePeak& step_of(const std::vector<PhasePeak>& phases) {
  const PhasePeak* step = phase_of(phases, PeakPhase::kStep);
  SMP_CHECK(step != nullptr);
  return *step;
}

bool is(const MemoryTerm& term, Term of) { return term.name == name_of(of); }

// What only a pass or an update needs.
bool comes_and_goes(const MemoryTerm& term) {
  if (is(term, Term::kContext) || is(term, Term::kFragmentation)) return false;
  return term.category == MemoryCategory::kActivations ||
         term.category == MemoryCategory::kWorkspace || term.category == MemoryCategory::kData ||
         is(term, Term::kMessages) || is(term, Term::kBuckets);
}

bool is_gathered(const MemoryTerm& term) {
  return is(term, Term::kGatheredWeights) || is(term, Term::kUnreducedGradients);
}

// Momentum and variance, under every optimizer's name for them.
bool is_moment(const MemoryTerm& term) {
  return term.category == MemoryCategory::kOptimizer && !is(term, Term::kMasterWeights);
}

// The terms that `keeps` takes. What the allocator takes besides stays in proportion to them.
template <class Keeps>
EventPeak event_of(std::string event, const std::vector<MemoryTerm>& terms, const Keeps& keeps) {
  const auto is_allocated = [](const MemoryTerm& term) {
    return !is(term, Term::kContext) && !is(term, Term::kCommunicators) &&
           !is(term, Term::kFragmentation);
  };
  double all = 0, kept = 0;
  for (const MemoryTerm& term : terms) {
    if (!is_allocated(term)) continue;
    all += static_cast<double>(term.bytes);
    if (keeps(term)) kept += static_cast<double>(term.bytes);
  }
  EventPeak peak{std::move(event), 0, {}};
  for (MemoryTerm term : terms) {
    if (is(term, Term::kFragmentation)) {
      term.bytes = all > 0 ? text::whole_bytes(static_cast<double>(term.bytes) * kept / all) : 0;
    } else if (!keeps(term)) {
      continue;
    }
    peak.bytes += term.bytes;
    peak.terms.push_back(std::move(term));
  }
  return peak;
}

EventPeak whole(std::string event, const PhasePeak& phase) {
  return {std::move(event), phase.bytes, phase.terms};
}

// Most that a forward pass without a backward holds: a layer's input, and the layer.
int64_t forward_bytes(const Plan& plan, int64_t stage) {
  const choice::LayoutChoice choice = choice::choice_of(plan);
  const cost::LayerBytes layers = cost::layer_bytes(plan.job, choice);
  const cost::StageHolds holds = cost::stage_holds(*layers.kinds, choice, stage);
  double most = 0;
  for (size_t kind = 0; kind < holds.of_kind.size(); ++kind) {
    if (holds.of_kind[kind] > 0) most = std::max(most, layers.of_kind[kind].call.forward);
  }
  return text::whole_bytes(most + layers.boundary);
}

EventPeak evaluation(const Plan& plan, int64_t stage, const std::vector<PhasePeak>& phases) {
  const bool engine = cost::is_of_engine(plan.job);  // its buffers stay
  const PhasePeak* forward = phase_of(phases, PeakPhase::kForward);
  EventPeak peak =
      event_of("evaluation", (forward != nullptr ? *forward : step_of(phases)).terms,
               [&](const MemoryTerm& term) {
                 return !comes_and_goes(term) && (engine || !is(term, Term::kUnreducedGradients));
               });
  const int64_t bytes = forward_bytes(plan, stage);
  peak.terms.push_back({"one layer's forward", MemoryCategory::kActivations, bytes, "", ""});
  peak.bytes += bytes;
  return peak;
}

// `more` are the phases with kMoreRouted times the routed tokens, `ratio` the tokens of the fullest
// rank over those of `even`.
EventPeak with_imbalance(const PhasePeak& even, const PhasePeak& more, double ratio) {
  EventPeak peak = whole("imbalance of " + std::string(even.phase), even);
  const double extra = static_cast<double>(more.bytes - even.bytes) / (kMoreRouted - 1);
  const int64_t bytes = std::max<int64_t>(0, text::whole_bytes((ratio - 1) * extra));
  peak.terms.push_back({"tokens of the other ranks", MemoryCategory::kActivations, bytes, "", ""});
  peak.bytes += bytes;
  return peak;
}

void add_imbalance(std::vector<EventPeak>& events, const Plan& plan, int64_t stage, int64_t tensor,
                   const std::vector<PhasePeak>& phases, double imbalance) {
  if (plan.job.model.num_experts == 0 || imbalance <= 1) return;
  const double ratio =
      cost::within_capacity(plan.job.model, imbalance) / cost::fullest_share(plan.job);
  Plan routed = plan;
  routed.job.model.experts_per_token *= kMoreRouted;
  const std::vector<PhasePeak> more = MemoryModel(routed).phases(stage, tensor);
  for (const PeakPhase phase : {PeakPhase::kForward, PeakPhase::kBackward}) {
    const PhasePeak* even = phase_of(phases, phase);
    const PhasePeak* other = phase_of(more, phase);
    if (even != nullptr && other != nullptr) events.push_back(with_imbalance(*even, *other, ratio));
  }
}

}  // namespace

std::vector<EventPeak> event_peaks(const Plan& plan, int64_t stage, int64_t tensor,
                                   double expert_imbalance) {
  const std::vector<PhasePeak> phases = MemoryModel(plan).phases(stage, tensor);
  const bool engine = cost::is_of_engine(plan.job);
  const bool has_gradients = engine || framework::framework_model(plan.job).flat_gradient_buffer;
  const PhasePeak& step = step_of(phases);
  std::vector<EventPeak> events;
  events.push_back(event_of("load and initialisation", step.terms, [&](const MemoryTerm& term) {
    if (comes_and_goes(term) || (is_gathered(term) && !engine)) return false;
    if (!engine && is_moment(term)) return false;
    return has_gradients || term.category != MemoryCategory::kGradients;
  }));
  const auto exists_at_first = [&](const MemoryTerm& term) { return engine || !is_moment(term); };
  const std::pair<PeakPhase, const char*> passes[] = {{PeakPhase::kForward, "forward"},
                                                      {PeakPhase::kBackward, "backward"}};
  for (const auto& [phase, name] : passes) {
    if (const PhasePeak* peak = phase_of(phases, phase))
      events.push_back(event_of(std::string("first step, ") + name, peak->terms, exists_at_first));
  }
  events.push_back(whole("first step, update", step));
  for (const auto& [phase, name] : passes) {
    if (const PhasePeak* peak = phase_of(phases, phase))
      events.push_back(whole(std::string("second step, ") + name, *peak));
  }
  events.push_back(evaluation(plan, stage, phases));
  if (const PhasePeak* saving = phase_of(phases, PeakPhase::kCheckpoint)) {
    events.push_back(whole("checkpoint save", *saving));
  } else {
    events.push_back(event_of("checkpoint save", step.terms,
                              [](const MemoryTerm& term) { return !comes_and_goes(term); }));
  }
  add_imbalance(events, plan, stage, tensor, phases, expert_imbalance);
  return events;
}

const EventPeak& largest_of(const std::vector<EventPeak>& events) {
  SMP_CHECK(!events.empty());
  return *std::max_element(
      events.begin(), events.end(),
      [](const EventPeak& a, const EventPeak& b) { return a.bytes < b.bytes; });
}

}  // namespace smp::memory
