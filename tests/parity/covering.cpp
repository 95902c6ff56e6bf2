#include "parity/covering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "smp/plan/spec/job_names.h"
#include "smp/planner/search/check_plan.h"

namespace smp::parity {
namespace {

// The factors and how many values each has; a combination is one index of each.
enum Factor {
  kPipeline,
  kTensor,
  kShard,
  kReplica,
  kSharding,
  kSchedule,
  kRecompute,
  kOffload,
  kMicrobatches,
  kActive,
  kFamily,
  kTied,
  kDropout,
  kSequence,
  kSmall,
  kPrecision,
  kFactors
};
using Choice = std::array<int, kFactors>;

constexpr std::array<int64_t, 5> kPipelines{1, 2, 3, 4, 8};
constexpr std::array<int64_t, 3> kTensors{1, 2, 4};
constexpr std::array<int64_t, 4> kShards{1, 2, 4, 8};
constexpr std::array<int64_t, 3> kReplicas{1, 2, 4};
constexpr std::array<Sharding, 4> kShardings{Sharding::kNone, Sharding::kOptimizerState,
                                             Sharding::kGradients, Sharding::kParameters};
constexpr std::array<PipelineKind, 5> kSchedules{PipelineKind::kSimple, PipelineKind::kInterleaved,
                                                 PipelineKind::kVirtual, PipelineKind::kZbH1,
                                                 PipelineKind::kZbV};
struct Again {
  const char* name;
  Recompute recompute;
  int64_t layers;
  const char* strategy = "each";
};
constexpr std::array<Again, 6> kRecomputes{
    {{"", Recompute::kNone, -1},
     {" full recompute", Recompute::kFull, -1},
     {" recompute of 1 layer", Recompute::kFull, 1},
     {" selective recompute", Recompute::kSelective, -1},
     {" group_2 recompute", Recompute::kFull, -1, "group_2"},
     {" contiguous recompute", Recompute::kFull, -1, "contiguous"}}};
constexpr std::array<int64_t, 5> kMicrobatchCounts{1, 2, 3, 4, 6};

struct Small {
  const char* name;
  int64_t shard_bucket_bytes;
  int64_t param_persistence_threshold;
};
constexpr std::array<Small, 3> kSmalls{
    {{"", 1, 0}, {" packed", 600 << 10, 0}, {" norms and biases gathered", 1, 500}}};

constexpr std::array<Precision, 4> kPrecisions{Precision::kFp64, Precision::kFp32, Precision::kBf16,
                                               Precision::kFp16};

constexpr std::array<Family, 3> kFamilies{Family::kGpt2, Family::kLlama, Family::kT5};
constexpr std::array<const char*, 3> kFamilyNames{"gpt2", "llama", "t5"};

constexpr std::array<int, kFactors> kSizes{5, 3, 4, 3, 4, 5, 6, 6, 5, 2, 3, 2, 2, 2, 3, 4};

constexpr int64_t kBatch = 12;  // of layouts.h

Combination combination_of(const Choice& choice) {
  const auto value = [&](const auto& values, Factor factor) {
    return values[static_cast<size_t>(choice[factor])];
  };
  Combination made;
  LayoutCase& layout = made.layout;
  layout.degrees.pipeline = value(kPipelines, kPipeline);
  layout.degrees.tensor = value(kTensors, kTensor);
  layout.degrees.shard = value(kShards, kShard);
  layout.degrees.replica = value(kReplicas, kReplica);
  layout.sharding = value(kShardings, kSharding);
  layout.pipeline = value(kSchedules, kSchedule);
  const bool has_two_chunks =
      layout.pipeline == PipelineKind::kVirtual || layout.pipeline == PipelineKind::kZbV;
  layout.virtual_stages = has_two_chunks ? 2 : 1;
  layout.recompute = value(kRecomputes, kRecompute).recompute;
  layout.recompute_layers = value(kRecomputes, kRecompute).layers;
  layout.strategy = value(kRecomputes, kRecompute).strategy;
  layout.offload_activations = choice[kOffload] % 2 == 1;
  layout.offload_optimizer = choice[kOffload] / 2 >= 1;
  layout.offload_parameters = choice[kOffload] / 2 == 2;
  layout.microbatches = value(kMicrobatchCounts, kMicrobatches);
  if (choice[kActive] == 1) layout.active_microbatches = (layout.microbatches + 1) / 2;
  made.family = value(kFamilies, kFamily);
  made.tied = choice[kTied] == 1;
  made.dropout = choice[kDropout] == 1;
  layout.sequence_parallel = choice[kSequence] == 1;
  const Small& small = value(kSmalls, kSmall);
  layout.shard_bucket_bytes = small.shard_bucket_bytes;
  layout.param_persistence_threshold = small.param_persistence_threshold;
  made.precision = value(kPrecisions, kPrecision);
  const mesh::Degrees& d = layout.degrees;
  layout.name = fmt::format(
      "{}{}{} p{} t{}{} z{} r{} sharding {}{} {} m{}{}{}{}{}", value(kFamilyNames, kFamily),
      made.tied ? " tied" : "", made.dropout ? " dropout" : "", d.pipeline, d.tensor,
      layout.sequence_parallel ? " split sequences" : "", d.shard, d.replica,
      static_cast<int>(layout.sharding), small.name, name_of(layout.pipeline), layout.microbatches,
      layout.active_microbatches > 0 ? fmt::format(" active {}", layout.active_microbatches) : "",
      value(kRecomputes, kRecompute).name, layout.offload_activations ? " offload" : "",
      layout.offload_parameters  ? " optimizer and parameter offload"
      : layout.offload_optimizer ? " optimizer offload"
                                 : "");
  return made;
}

// What makes no sense before any plan is made; the rest is for check().
bool is_sensible(const Choice& choice) {
  const Combination made = combination_of(choice);
  const mesh::Degrees& d = made.layout.degrees;
  if (d.pipeline * d.tensor * d.shard * d.replica > 8) return false;
  if ((d.shard > 1) != (made.layout.sharding != Sharding::kNone)) return false;
  if (made.layout.sequence_parallel && d.tensor == 1) return false;
  if (choice[kSmall] == 1 && made.layout.sharding < Sharding::kGradients) return false;
  if (choice[kSmall] == 2 && made.layout.sharding != Sharding::kParameters) return false;
  if (kBatch % (made.layout.microbatches * d.shard * d.replica) != 0) return false;
  const bool one_stage = d.pipeline == 1;
  return !one_stage || made.layout.pipeline == PipelineKind::kSimple ||
         made.layout.pipeline == PipelineKind::kInterleaved;
}

using Pair = std::array<int, 4>;  // factor, value, factor, value

std::vector<Pair> pairs_of(const Choice& choice) {
  std::vector<Pair> pairs;
  for (int a = 0; a < kFactors; ++a) {
    for (int b = a + 1; b < kFactors; ++b) {
      pairs.push_back({a, choice[static_cast<size_t>(a)], b, choice[static_cast<size_t>(b)]});
    }
  }
  return pairs;
}

class Random {  // xorshift64, Marsaglia 2003
 public:
  int below(int bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<int>(state_ % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_ = 88172645463325252u;
};

class Legal {
 public:
  explicit Legal(std::string data_path) : data_path_(std::move(data_path)) {}

  bool operator()(const Choice& choice) const {
    if (!is_sensible(choice)) return false;
    const Combination made = combination_of(choice);
    try {
      return search::check(plan_of(made.model(), made.layout, made.precision, data_path_)).empty();
    } catch (const std::exception&) {  // no plan at all
      return false;
    }
  }

 private:
  std::string data_path_;
};

Choice draw(Random& random) {
  Choice choice;
  for (size_t f = 0; f < kFactors; ++f) choice[f] = random.below(kSizes[f]);
  return choice;
}

}  // namespace

ModelSpec Combination::model() const {
  ModelSpec model = family == Family::kT5      ? t5_model()
                    : family == Family::kLlama ? llama_model()
                                               : gpt2_untied_model();
  model.num_layers = 8;  // 2 chunks on each of 4 stages
  if (family == Family::kT5) model.num_layers = model.decoder_layers = 4;
  model.tied_embeddings = tied;
  if (dropout) {
    model.hidden_dropout = 0.1;
    model.attention_dropout = 0.2;
  }
  return model;
}

CoveringSet covering_set(size_t least, const std::string& data_path) {
  const Legal legal(data_path);
  Random random;
  // What may legally meet: as found in many draws, and in draws for each pair that is still open.
  std::set<Choice> pool;
  std::set<Pair> open;
  const auto admit = [&](const Choice& choice) {
    if (pool.contains(choice) || !legal(choice)) return;
    pool.insert(choice);
    for (const Pair& pair : pairs_of(choice)) open.insert(pair);
  };
  for (int i = 0; i < 60000 && pool.size() < 700; ++i) admit(draw(random));
  for (int a = 0; a < kFactors; ++a) {
    for (int b = a + 1; b < kFactors; ++b) {
      for (int i = 0; i < kSizes[static_cast<size_t>(a)] * kSizes[static_cast<size_t>(b)]; ++i) {
        const Pair pair{a, i % kSizes[static_cast<size_t>(a)], b,
                        i / kSizes[static_cast<size_t>(a)]};
        for (int tries = 0; tries < 300 && !open.contains(pair); ++tries) {
          Choice choice = draw(random);
          choice[static_cast<size_t>(a)] = pair[1];
          choice[static_cast<size_t>(b)] = pair[3];
          admit(choice);
        }
      }
    }
  }

  CoveringSet set;
  set.pairs = static_cast<int64_t>(open.size());
  while (!pool.empty() && (!open.empty() || set.combinations.size() < least)) {
    const auto gain = [&](const Choice& choice) {
      int64_t found = 0;
      for (const Pair& pair : pairs_of(choice)) found += open.contains(pair) ? 1 : 0;
      return found;
    };
    auto best = pool.begin();
    if (open.empty()) {
      std::advance(best, random.below(static_cast<int>(pool.size())));
    } else {
      int64_t most = -1;
      for (auto it = pool.begin(); it != pool.end(); ++it) {
        const int64_t found = gain(*it);
        if (found > most) {
          most = found;
          best = it;
        }
      }
    }
    for (const Pair& pair : pairs_of(*best)) open.erase(pair);
    set.combinations.push_back(combination_of(*best));
    pool.erase(best);
  }
  return set;
}

}  // namespace smp::parity
