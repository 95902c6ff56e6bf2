#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "cost/state_bytes.h"
#include "memory/stage_blocks.h"
#include "memory/stage_terms.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/memory/memory_estimate.h"

namespace smp::memory {
namespace {

std::string count(double number) { return text::with_commas(std::llround(number)); }

// "2 B x 1,000 / 8 + 2 B x 500 / 4": of dense parameters and of experts; `kind` says which.
std::string states(double bytes, const cost::StageParameters& parameters,
                   const cost::ShardRanks& ranks, bool sharded, const char* kind = "") {
  std::string text;
  const auto add = [&](double parts, double over, const char* what) {
    if (parts <= 0) return;
    text += fmt::format("{}{:g} B x {}{}{}", text.empty() ? "" : " + ", bytes, count(parts), kind,
                        what);
    if (sharded && over > 1) text += fmt::format(" / {:g}", over);
  };
  add(parameters.dense, ranks.dense, "");
  add(parameters.experts, ranks.experts, " of experts");
  return text;
}

// Frozen weights may be of different widths: on average so many bytes each.
std::string frozen_words(const cost::StageParameters& parameters, const cost::ShardRanks& ranks,
                         bool sharded) {
  const double all = parameters.frozen + parameters.frozen_experts;
  if (all <= 0) return "";
  const double bytes = (parameters.frozen_bytes + parameters.frozen_expert_bytes) / all;
  const cost::StageParameters frozen{.dense = parameters.frozen,
                                     .experts = parameters.frozen_experts};
  return states(std::round(bytes * 1e3) / 1e3, frozen, ranks, sharded, " frozen");
}

std::string live_words(double live) {
  return fmt::format("{:g} microbatch{} live", live, live == 1 ? "" : "es");
}

// What a stage's blocks keep: `kept` of each block that does not recompute, `left` of each that
// does (null: nothing), less so many outputs that were sent and are gone.
std::string kept_words(const choice::LayoutChoice& choice, const cost::LayerBytes& layers,
                       const cost::StageHolds& holds, double cost::CallBytes::*kept,
                       double cost::CallBytes::*left, double live, double freed) {
  struct Calls {
    double bytes = 0, count = 0;
    std::string_view words;
  };
  std::vector<Calls> calls;
  const auto add = [&](double bytes, double count, std::string_view words) {
    if (count <= 0) return;
    for (Calls& other : calls) {
      if (other.bytes != bytes || other.words != words) continue;
      other.count += count;
      return;
    }
    calls.push_back({bytes, count, words});
  };
  const double share = share_that_recomputes(choice, holds.all_blocks());
  for (size_t kind = layers.kinds->first_block(); kind < layers.kinds->head(); ++kind) {
    const cost::CallBytes& call = layers.of_kind[kind].call;
    const std::string_view words = (*layers.kinds)[kind].words;
    // A chunk's last frozen block keeps its output, where no gradient passes through them.
    if ((*layers.kinds)[kind].is_frozen && is_forward_alone(call)) {
      const bool keeps = (choice.recompute == Recompute::kFull) == (kept == nullptr);
      if (keeps && kind == layers.kinds->first_block()) {
        add(call.output, holds.frozen_chunks, words);
      }
      continue;
    }
    if (kept != nullptr) add(call.*kept, holds.of_kind[kind] * (1 - share), words);
    if (left != nullptr) add(call.*left, holds.of_kind[kind] * share, words);
  }
  const size_t kinds = calls.size();
  if (kinds == 0) return "";
  std::string text;
  for (const Calls& each : calls) {
    text += fmt::format("{}{} B x {:g} layers{}", text.empty() ? "" : " + ", count(each.bytes),
                        each.count, each.words);
  }
  text = fmt::format("{}{}{} x {}", kinds > 1 ? "(" : "", text, kinds > 1 ? ")" : "",
                     live_words(live));
  if (freed > 0) {
    text += fmt::format(" - {} B x {:g} of outputs already sent", count(layers.boundary), freed);
  }
  return text;
}

}  // namespace

std::string formula_of(Term term, const JobSpec& job, const choice::LayoutChoice& choice,
                       const cost::LayerBytes& layers, const cost::StageHolds& holds, double live) {
  const framework::FrameworkModel& framework = framework::framework_model(job);
  const cost::StateBytes state = cost::state_bytes(job, choice);
  const cost::ShardRanks ranks = cost::shard_ranks(job, choice);
  const cost::StageParameters parameters = cost::parameters_of(layers, holds);
  const char* kind = job.training.lora.rank > 0 ? " of adapters" : "";
  const auto of_state = [&](double bytes, Sharding from) {
    return states(bytes, parameters, ranks, choice.sharding >= from, kind);
  };
  const double block = layers.largest_block_parameters;
  const double freed = freed_outputs(job, choice, holds.head, live);
  const bool none_kept = choice.recompute == Recompute::kFull &&
                         share_that_recomputes(choice, holds.all_blocks()) == 1;
  switch (term) {
    case Term::kWeights: {
      const double copy = StateRules(job, choice).copy_bytes;
      const std::string weights = of_state(state.weight, Sharding::kParameters);
      if (copy == 0) return weights;
      return fmt::format("{} {} {:g} B x {} in {}, and transposed", weights, copy > 0 ? '+' : '-',
                         std::abs(copy), count(cost::block_parameters(layers, holds)),
                         name_of(choice.precision));
    }
    case Term::kFrozenWeights:
      return frozen_words(parameters, ranks, choice.sharding == Sharding::kParameters);
    case Term::kGradients: return of_state(state.gradient, Sharding::kGradients);
    case Term::kGradientCopy:
      return states(state.gradient_copy, parameters, ranks,
                    state.copy_sharded && choice.sharding >= Sharding::kOptimizerState, kind);
    case Term::kMasterWeights: return of_state(state.master, Sharding::kOptimizerState);
    case Term::kMomentum: return of_state(state.momentum, Sharding::kOptimizerState);
    case Term::kVariance: return of_state(state.variance, Sharding::kOptimizerState);
    case Term::kGatheredWeights: {
      const double ends = (holds.embedding ? layers.embedding().parameters : 0) +
                          (holds.head ? layers.head().parameters : 0);
      const int64_t ahead = blocks_ahead(job, layers);
      if (framework.gathers_ends_with_model) {
        return fmt::format("{:g} B x ({} of embedding and head + {} x {})", state.compute,
                           count(ends), 1 + ahead, count(block));
      }
      if (framework.reuse_elements > 0) {
        return fmt::format("{:g} B x ({} of the largest layer + {} x {} needed again + {} ahead)",
                           state.compute, count(layers.largest_layer_parameters),
                           blocks_reused(job, choice, layers, holds), count(block),
                           count(small_bucket(job)));
      }
      return fmt::format("{:g} B x ({} of the largest layer + {} x {} ahead)", state.compute,
                         count(layers.largest_layer_parameters), ahead, count(block));
    }
    case Term::kUnreducedGradients:
      return fmt::format("{:g} B x {} of a layer", state.unreduced, count(block));
    case Term::kBuckets:
      return fmt::format("{:g} B x {} elements at most", state.gradient,
                         text::with_commas(framework.bucket_elements));
    case Term::kActivations:
      return kept_words(
          choice, layers, holds, &cost::CallBytes::saved,
          choice.recompute == Recompute::kSelective ? &cost::CallBytes::selective : nullptr, live,
          none_kept ? 0 : freed);
    case Term::kCheckpoints:
      return kept_words(choice, layers, holds, nullptr, &cost::CallBytes::checkpoint, live,
                        none_kept ? freed : 0);
    case Term::kEmbeddingActivations:
      return fmt::format("{} B x {}", count(layers.embedding().call.saved), live_words(live));
    case Term::kLogits:
      return fmt::format("{} B kept, {} B in its forward", count(layers.head().call.saved),
                         count(layers.head().call.forward));
    case Term::kRecomputed: return "what one block computes again";
    case Term::kWorkspace: return "matmul workspaces + gradients inside the running layer";
    case Term::kOffloadWindow:
      return fmt::format("{} layers ahead and one on its way",
                         job.parallel.activation_loading_horizon);
    case Term::kOptimizerWorkspace:
      return fmt::format("{:g} B x updated parameters; {:g} B x {} while saving",
                         StateRules(job, choice).step_bytes, state.weight, count(block));
    case Term::kMessages:
      return fmt::format("{} B a message, {}", count(layers.boundary), live_words(live));
    case Term::kBatch:
      return fmt::format("8 B x {} tokens x {}",
                         text::with_commas(int64_t{choice.micro_batch} *
                                           job.training.sequence_length / choice.context),
                         live_words(live));
    case Term::kContext: return "of a process";
    case Term::kCommunicators: return "of each group that the rank is in";
    case Term::kFragmentation:
      return fmt::format("{:g} x what is allocated", framework.fragmentation);
  }
  return "";
}

std::string formula_of(Term term, const JobSpec& job, const choice::LayoutChoice& choice,
                       int64_t stage) {
  const cost::LayerBytes layers = cost::layer_bytes(job, choice);
  return formula_of(term, job, choice, layers, cost::stage_holds(*layers.kinds, choice, stage),
                    microbatches_in_flight(choice, stage));
}

}  // namespace smp::memory
