#include "search/fastest.h"

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>
#include <utility>

#include "search/stage_balance.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/planner/memory/memory_estimate.h"

namespace smp::search {
namespace {

struct Node {
  choice::LayoutChoice choice;
  double bound = 0;  // seconds per token
  int32_t split = 0;
  bool rare = false;
};

// Layouts than which no other is both faster and smaller.
class Front {
 public:
  bool dominates(double seconds_per_token, double peak_bytes) const {
    const auto after = std::upper_bound(
        points_.begin(), points_.end(), seconds_per_token,
        [](double time, const Candidate& point) { return time < point.seconds_per_token; });
    return after != points_.begin() && (after - 1)->peak_bytes <= peak_bytes;
  }
  void offer(const Candidate& candidate) {
    if (dominates(candidate.seconds_per_token, candidate.peak_bytes)) return;
    const auto first = std::lower_bound(points_.begin(), points_.end(), candidate,
                                        [](const Candidate& a, const Candidate& b) {
                                          return a.seconds_per_token < b.seconds_per_token;
                                        });
    auto last = first;
    while (last != points_.end() && last->peak_bytes >= candidate.peak_bytes) ++last;
    points_.insert(points_.erase(first, last), candidate);
  }
  std::vector<Candidate> take() { return std::move(points_); }

 private:
  std::vector<Candidate> points_;  // ascending time, descending peak
};

class Search {
 public:
  Search(Pricer& pricer, const SearchSpace& space, bool pareto, double reach)
      : pricer_(pricer),
        space_(space),
        pareto_(pareto),
        share_(pareto ? kParetoReach : kListed),
        reach_(reach),
        blocks_(model::block_count(space.job().model)) {}

  FastestResult run() {
    make_nodes();
    for (const Place& place : order_of_nodes()) {
      SplitResult& split = result_.splits[static_cast<size_t>(place.split)];
      const double most = place.rare && !pareto_ ? std::max(kRareGain * best_, reach_) : limit();
      if (place.bound > most || (best_ == 0 && !split.fits.empty())) {
        split.least_seconds_per_token = std::min(split.least_seconds_per_token, place.bound);
        continue;
      }
      visit(nodes_[place.node], split);
    }
    if (!pareto_) try_uneven_stages();
    result_.pareto = front_.take();
    take_candidates();
    return std::move(result_);
  }

 private:
  double limit() const { return std::max(share_ * best_, reach_); }

  // What a simulation may show to be the fastest.
  bool is_near(const Candidate& layout) const {
    const double last = std::max(kListed * best_, reach_);
    return layout.least_seconds_per_token <= last &&
           layout.seconds_per_token <= kOverestimate * last;
  }

  void take_candidates() {
    std::erase_if(candidates_, [this](const Candidate& layout) { return !is_near(layout); });
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return a.seconds_per_token < b.seconds_per_token;
                     });
    result_.candidates = std::move(candidates_);
  }

  void make_nodes() {
    for (const SearchSpace::Split& split : space_.splits()) {
      SplitResult result;
      result.split = split;
      const choice::BatchChoices batches =
          choice::every_batch(space_.job(), split.pipeline, split.data, split.context);
      result.problem = batches.problem.empty() ? space_.schedules_problem(split, batches.shapes)
                                               : batches.problem;
      for (const choice::BatchShape& batch : batches.shapes) {
        add_nodes(split, batch, static_cast<int32_t>(result_.splits.size()));
      }
      result_.splits.push_back(std::move(result));
      shardings_.push_back(space_.shardings(split));
    }
  }

  // What decides whether a node is visited: nodes are large, and most are not.
  struct Place {
    bool rare;
    int32_t split;
    double bound;
    size_t node;
  };

  // By ascending bound, rare ones last.
  std::vector<Place> order_of_nodes() const {
    std::vector<Place> places;
    places.reserve(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      places.push_back({nodes_[i].rare, nodes_[i].split, nodes_[i].bound, i});
    }
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      if (a.rare != b.rare) return b.rare;
      return a.bound != b.bound ? a.bound < b.bound : a.node < b.node;
    });
    return places;
  }

  void add_nodes(const SearchSpace::Split& split, const choice::BatchShape& batch, int32_t index) {
    choice::LayoutChoice choice = space_.first_choice(split, batch);
    const auto sequences = space_.sequence_parallel(split);
    const auto placements = space_.placements(split);
    for (const auto& schedule : space_.schedules(split, batch)) {
      space_.set_schedule(split, schedule, choice);
      for (const bool sequence : sequences) {
        choice.sequence_parallel = sequence;
        for (const choice::PlacementStrategy placement : placements) {
          choice.placement = placement;
          const double tokens = static_cast<double>(choice.data()) * choice.micro_batch *
                                choice.microbatches *
                                static_cast<double>(space_.job().training.sequence_length);
          nodes_.push_back(
              {choice, pricer_.least_step_s(choice) / tokens, index, space_.is_rare(choice)});
        }
      }
    }
  }

  void visit(const Node& node, SplitResult& split) {
    const std::vector<SearchSpace::ShardingChoice>& shardings =
        shardings_[static_cast<size_t>(node.split)];
    if (shardings.empty()) return;
    const bool is_rare = node.rare && !pareto_;
    if (is_rare && hopeless_.contains(key_of(node))) return;
    const MemoryKey memory = memory_of(node);
    if (too_large_.contains(memory)) return;
    if (!leanest_fits(node.choice, shardings, split)) {
      // One that was refused may be a layout of this node alone.
      if (!pricer_.has_refused()) too_large_.insert(memory);
      return;
    }
    if (is_rare && !is_promising(node, shardings, split)) return;
    for (const SearchSpace::ShardingChoice& sharding : shardings) {
      visit_sharding(sharded(node.choice, sharding, split), split);
    }
  }

  using HopelessKey =
      std::tuple<int32_t, int32_t, PipelineKind, int32_t, int32_t, bool, choice::PlacementStrategy>;
  // Nodes that differ in their microbatches alone have the same.
  static HopelessKey key_of(const Node& node) {
    const choice::LayoutChoice& of = node.choice;
    return {node.split,        of.micro_batch,        of.schedule,
            of.virtual_stages, of.first_stage_layers, of.sequence_parallel,
            of.placement};
  }

  // Nodes that hold as many bytes, each layout of one as its like of the other: their microbatches
  // count by how many are in flight.
  using MemoryKey = std::tuple<HopelessKey, double, double, double, bool>;
  static MemoryKey memory_of(const Node& node) {
    const choice::LayoutChoice& of = node.choice;
    const auto in_flight = [&](int64_t stage) {
      return stage < of.pipeline ? memory::microbatches_in_flight(of, stage) : 0;
    };
    return {key_of(node), in_flight(0), in_flight(1), in_flight(of.pipeline - 1),
            of.microbatches == 1};
  }

  // Of a rare node the ends of the row of shardings say whether it is worth all of it. One that is
  // not, with more microbatches, says the same of those with fewer: they come later, and amortise
  // less.
  bool is_promising(const Node& node, const std::vector<SearchSpace::ShardingChoice>& shardings,
                    SplitResult& split) {
    constexpr double kNear = 1.02;
    best_offered_ = std::numeric_limits<double>::infinity();
    const int32_t most = shardings.back().degree;
    for (const SearchSpace::ShardingChoice& sharding : shardings) {
      if (sharding.degree != most && sharding.kind != Sharding::kNone) continue;
      visit_sharding(sharded(node.choice, sharding, split), split);
    }
    if (best_offered_ <= kNear * best_) return true;
    hopeless_.insert(key_of(node));
    return false;
  }

  static choice::LayoutChoice sharded(choice::LayoutChoice choice,
                                      const SearchSpace::ShardingChoice& sharding,
                                      const SplitResult& split) {
    choice.sharding = sharding.kind;
    choice.shard = sharding.degree;
    choice.replica = static_cast<int32_t>(split.split.data / sharding.degree);
    return choice;
  }

  // Whether any layout of the node may fit: what needs least is sharded as far as it goes.
  bool leanest_fits(choice::LayoutChoice choice,
                    const std::vector<SearchSpace::ShardingChoice>& shardings, SplitResult& split) {
    const int32_t most = shardings.back().degree;
    std::optional<Candidate> closest;
    for (auto sharding = shardings.rbegin(); sharding != shardings.rend(); ++sharding) {
      if (sharding->degree != most && sharding->kind != Sharding::kNone) continue;
      choice.sharding = sharding->kind;
      choice.shard = sharding->degree;
      choice.replica = static_cast<int32_t>(split.split.data / sharding->degree);
      for (auto recompute = space_.recomputes().rbegin(); recompute != space_.recomputes().rend();
           ++recompute) {
        choice.recompute = *recompute;
        for (auto offload = space_.offloads().rbegin(); offload != space_.offloads().rend();
             ++offload) {
          if (!applies(*offload, choice)) continue;
          apply(*offload, choice);
          const Candidate candidate = pricer_.price_memory(choice);
          if (pricer_.accepts(candidate.fit)) {
            return !pareto_ || !front_.dominates(0, candidate.peak_bytes);
          }
          if (!closest || candidate.peak_bytes < closest->peak_bytes) closest = candidate;
        }
      }
    }
    if (closest) note_rejection(*closest, split);
    return false;
  }

  static void apply(const Offload& offload, choice::LayoutChoice& choice) {
    choice.offload_activations = offload.activations;
    choice.offload_optimizer = offload.optimizer;
    choice.offload_parameters = offload.parameters;
  }

  // What is offloaded of activations are checkpoints, but where our engine is asked for something
  // else; weights move layer by layer as gathered ones do.
  bool applies(const Offload& offload, const choice::LayoutChoice& choice) const {
    const ParallelSpec& parallel = space_.job().parallel;
    if (offload.activations && choice.recompute != Recompute::kFull &&
        (!parallel.recompute ||
         rules::offload_activations_problem(parallel.framework, choice.recompute))) {
      return false;
    }
    return !offload.parameters || choice.sharding == Sharding::kParameters;
  }

  // With a given sharding: first as it is, and what saves memory at the cost of time only where
  // that does not fit. What is slower than the limit without recomputing is left at once, and what
  // fits without offloading something is not tried with it.
  void visit_sharding(choice::LayoutChoice choice, SplitResult& split) {
    if (pareto_ && adds_nothing(choice, split)) return;
    bool whole_fits = false;  // recomputed as a whole, with its checkpoints in place
    bool optimizer_offload_enough = false;
    bool first = true;
    for (const Offload& offload : space_.offloads()) {
      if (!pareto_ && offload.activations && whole_fits) continue;
      if (!pareto_ && offload.parameters && optimizer_offload_enough) continue;
      for (const Recompute recompute : space_.recomputes()) {
        choice.recompute = recompute;
        if (!applies(offload, choice)) continue;
        apply(offload, choice);
        const bool plain = std::exchange(first, false);
        const bool least_time = recompute == space_.recomputes().front();
        if (space_.forbidden().matches(choice)) continue;
        const Candidate timed = pricer_.price_time(choice);
        const bool ends = !pareto_ && least_time && timed.least_seconds_per_token > limit();
        const bool ignored = (ends || skips_memory(timed, offload)) && is_beaten(timed, split);
        const bool fits = !ignored && offer_timed(timed, split);
        if (!pareto_ && plain && fits) return;
        if (ends) {
          if (plain) return;
          break;
        }
        if (!fits) continue;
        if (recompute == Recompute::kNone) {
          optimizer_offload_enough |= offload.optimizer && !offload.activations;
          break;
        }
        if (recompute != Recompute::kFull) continue;
        whole_fits |= !offload.activations;
        // What is offloaded are checkpoints: with fewer of them there is less to offload.
        if (space_.recompute_layers_open() && !offload.activations) {
          recompute_fewest(choice, split);
        }
      }
    }
  }

  // Whether whatever is recomputed and offloaded of the layout is far from the best, and both
  // slower and larger than something on the front: none is faster than the layout as it is, and
  // none smaller than one of those that save the most. To recompute and to gather need buffers, so
  // with few layers less of either may be smaller.
  bool adds_nothing(choice::LayoutChoice choice, const SplitResult& split) {
    const std::vector<Offload>& offloads = space_.offloads();
    const std::vector<Recompute>& recomputes = space_.recomputes();
    if (offloads.empty() || recomputes.empty()) return true;
    choice.recompute = recomputes.front();
    apply(offloads.front(), choice);
    const Candidate timed = pricer_.price_time(choice);
    if (timed.least_seconds_per_token <= std::max(kListed * best_, reach_) ||
        !is_beaten(timed, split)) {
      return false;
    }
    for (auto offload = offloads.rbegin(); offload != offloads.rend(); ++offload) {
      for (const Recompute recompute : {recomputes.back(), recomputes.front()}) {
        choice.recompute = recompute;
        if (!applies(*offload, choice)) continue;
        apply(*offload, choice);
        const double peak_bytes = pricer_.price_memory(choice).peak_bytes;
        if (!front_.dominates(timed.seconds_per_token, peak_bytes)) return false;
      }
    }
    return true;
  }

  // The fewest layers of each stage that must be recomputed for the layout to fit, by bisection:
  // memory falls with each.
  void recompute_fewest(choice::LayoutChoice choice, SplitResult& split) {
    int32_t too_few = 0;
    auto enough = static_cast<int32_t>((blocks_ + choice.pipeline - 1) / choice.pipeline);
    const int32_t all = enough;
    while (enough - too_few > 1) {
      choice.recompute_layers = (too_few + enough) / 2;
      (pricer_.accepts(pricer_.price_memory(choice).fit) ? enough : too_few) =
          choice.recompute_layers;
    }
    if (enough == all) return;
    choice.recompute_layers = enough;
    offer(choice, split);
  }

  // Whether it is too slow, and nothing else depends on whether it fits.
  bool skips_memory(const Candidate& timed, const Offload& offload) const {
    return !pareto_ && offload.activations && timed.least_seconds_per_token > limit();
  }

  // Whether the layout says nothing of its split any more, however much memory it takes: another
  // one fits, and is so much faster that this one is not even taken for its simplicity.
  static bool is_beaten(const Candidate& timed, const SplitResult& split) {
    const Candidate* fastest = split.fits.fastest();
    return fastest != nullptr &&
           timed.least_seconds_per_token > kNoise * fastest->seconds_per_token;
  }

  // Whether it fits.
  bool offer(const choice::LayoutChoice& choice, SplitResult& split) {
    if (space_.forbidden().matches(choice)) return false;
    return offer_timed(pricer_.price_time(choice), split);
  }
  bool offer_timed(const Candidate& timed, SplitResult& split) {
    const Candidate candidate = pricer_.with_memory(timed);
    if (!pricer_.accepts(candidate.fit)) {
      note_rejection(candidate, split);
      return false;
    }
    split.fits.offer(candidate);
    best_offered_ = std::min(best_offered_, candidate.least_seconds_per_token);
    best_ = std::min(best_, candidate.seconds_per_token);
    if (is_near(candidate)) candidates_.push_back(candidate);
    if (pareto_) front_.offer(candidate);
    return true;
  }

  static void note_rejection(const Candidate& candidate, SplitResult& split) {
    if (!split.closest || candidate.peak_bytes < split.closest->peak_bytes) {
      split.closest = candidate;
    }
  }

  // The first and the last stage carry embedding and head: with fewer blocks there the best splits
  // may be faster, or fit with less recomputing.
  void try_uneven_stages() {
    const ParallelSpec& parallel = space_.job().parallel;
    if (!parallel.partition.empty() || !parallel.partition_method.empty()) return;
    std::vector<SplitResult*> staged;
    for (SplitResult& split : result_.splits) {
      if (split.split.pipeline > 1 && !split.fits.empty()) staged.push_back(&split);
    }
    std::stable_sort(staged.begin(), staged.end(), [](const SplitResult* a, const SplitResult* b) {
      return a->fits.fastest()->seconds_per_token < b->fits.fastest()->seconds_per_token;
    });
    constexpr size_t kTried = 8;
    if (staged.size() > kTried) staged.resize(kTried);
    for (SplitResult* split : staged) {
      choice::LayoutChoice choice = split->fits.fastest()->choice;
      if (choice.virtual_stages > 1) {
        offer_filled(choice, *split);
        continue;
      }
      const auto share = static_cast<int32_t>(blocks_ / choice.pipeline);
      for (int32_t first = share + 1; first >= std::max(1, share - 2); --first) {
        for (int32_t last = share + 1; last >= std::max(1, share - 2); --last) {
          choice.first_stage_layers = first;
          choice.last_stage_layers = last;
          const int64_t rest = blocks_ - first - last;
          if (choice.pipeline == 2 ? rest != 0 : rest < choice.pipeline - 2) continue;
          offer(choice, *split);
        }
      }
    }
  }

  // Stages of several chunks: those that keep the busiest one shortest.
  void offer_filled(choice::LayoutChoice choice, SplitResult& split) {
    const schedule::ScheduleShape shape{.kind = choice.schedule,
                                        .stages = choice.pipeline,
                                        .virtual_stages = choice.virtual_stages};
    const std::vector<int64_t> blocks =
        filled_stages(seconds_of_chunks(space_.job().model, pricer_.costs(choice).seconds), shape);
    choice.first_stage_layers = static_cast<int32_t>(blocks.front());
    choice.last_stage_layers = static_cast<int32_t>(blocks.back());
    offer(choice, split);
  }

  Pricer& pricer_;
  const SearchSpace& space_;
  bool pareto_;
  double share_;  // of the best time, beyond which layouts are bounded alone
  double reach_;
  int64_t blocks_;
  double best_ = std::numeric_limits<double>::infinity();
  double best_offered_ = 0;  // since a rare node's visit began
  std::set<HopelessKey> hopeless_;
  std::set<MemoryKey> too_large_;  // of which nothing fits
  std::deque<Node> nodes_;
  std::vector<std::vector<SearchSpace::ShardingChoice>> shardings_;  // by split
  Front front_;
  std::vector<Candidate> candidates_;
  FastestResult result_;
};

}  // namespace

bool is_of(const SearchSpace::Split& split, const choice::LayoutChoice& choice) {
  return choice.tensor == split.tensor && choice.pipeline == split.pipeline &&
         choice.context == split.context && choice.exchange == split.exchange &&
         choice.expert == split.expert && choice.expert_tensor == split.expert_tensor;
}

FastestResult search_fastest(Pricer& pricer, const SearchSpace& space, bool pareto, double reach) {
  return Search(pricer, space, pareto, reach).run();
}

}  // namespace smp::search
