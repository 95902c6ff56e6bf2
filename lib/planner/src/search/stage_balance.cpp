#include "search/stage_balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "cost/in_engine.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/planner/cost/layer_seconds.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/prediction/predict.h"

namespace smp::search {
namespace {

// What is gained must be worth a partition that nobody would write by hand.
constexpr double kLeastGain = 0.01;

// Of the stages, whatever chunks they hold.
double heaviest(const layout::PartitionWeights& weights, const schedule::ScheduleShape& shape,
                const std::vector<int64_t>& of_chunks) {
  const std::vector<double> chunks = layout::part_weights(weights, of_chunks);
  std::vector<double> stages(static_cast<size_t>(shape.stages));
  for (size_t position = 0; position < chunks.size(); ++position) {
    const schedule::ChunkPlace place =
        schedule::place_of_chunk(shape, static_cast<int64_t>(position));
    stages[static_cast<size_t>(place.stage)] += chunks[position];
  }
  return *std::max_element(stages.begin(), stages.end());
}

bool keeps_memory(const Plan& plan) {
  const int64_t allowed = memory::allowed_bytes(plan.job.cluster);
  return std::all_of(plan.predictions.ranks.begin(), plan.predictions.ranks.end(),
                     [&](const RankPrediction& rank) { return rank.peak_bytes <= allowed; });
}

// Takes a block from each chunk of the stages whose memory is passed.
void lower_full_stages(const Plan& plan, const schedule::ScheduleShape& shape,
                       const std::vector<int64_t>& of_chunks, std::vector<int64_t>& most) {
  const int64_t allowed = memory::allowed_bytes(plan.job.cluster);
  std::vector<bool> full(static_cast<size_t>(shape.stages), false);
  for (const RankPrediction& rank : plan.predictions.ranks) {
    if (rank.peak_bytes > allowed) full[static_cast<size_t>(rank.stage)] = true;
  }
  for (size_t position = 0; position < of_chunks.size(); ++position) {
    const schedule::ChunkPlace place =
        schedule::place_of_chunk(shape, static_cast<int64_t>(position));
    if (full[static_cast<size_t>(place.stage)]) most[position] = of_chunks[position] - 1;
  }
}

// The plan with that partition and predictions; where memory is passed, with the best one that
// keeps it. Nothing where none does.
std::optional<Plan> within_memory(Pricer& pricer, const choice::LayoutChoice& choice, Plan plan,
                                  const std::vector<int64_t>& partition,
                                  const layout::PartitionWeights& weights,
                                  const schedule::ScheduleShape& shape) {
  constexpr int kMostTries = 8;
  const auto blocks = static_cast<int64_t>(weights.blocks.size());
  const int64_t parts = shape.stages * shape.chunks();
  std::vector<int64_t> most(static_cast<size_t>(parts), blocks);
  plan.job.parallel.partition = partition;
  for (int i = 0; i < kMostTries; ++i) {
    if (plan.job.parallel.partition.empty()) return std::nullopt;
    plan.predictions = prediction::predict(plan, pricer.played_step(choice, plan));
    if (keeps_memory(plan)) return plan;
    lower_full_stages(plan, shape,
                      layout::blocks_per_chunk(shape, blocks, plan.job.parallel.partition), most);
    plan.job.parallel.partition = layout::balanced_partition(weights, parts, most);
  }
  return std::nullopt;
}

double step_ns_with(Pricer& pricer, const choice::LayoutChoice& choice, const Plan& plan,
                    const std::vector<int64_t>& partition) {
  Plan other = plan;
  other.job.parallel.partition = partition;
  return static_cast<double>(pricer.played_step(choice, other).step_ns);
}

// Whether stages other than those of the choice may be found.
bool may_assign(const choice::JobWithDefaults& defaulted) {
  const layout::PartitionMethod method =
      layout::read_partition_method(defaulted.job.parallel.partition_method).method;
  return method == layout::PartitionMethod::kAuto ||
         (method == layout::PartitionMethod::kUnsaid && defaulted.job.parallel.partition.empty() &&
          defaulted.balances_stages);
}

// What a found division may take of the time of the own one to be worth it.
double least_share(const JobSpec& job) {
  const bool asked = layout::read_partition_method(job.parallel.partition_method).method ==
                     layout::PartitionMethod::kAuto;
  return asked ? 1 : 1 - kLeastGain;
}

// The slowest chunk as fast as possible; and where a stage has several, the slowest stage.
std::vector<std::vector<int64_t>> balanced_partitions(const layout::PartitionWeights& weights,
                                                      const schedule::ScheduleShape& shape) {
  std::vector<std::vector<int64_t>> found;
  if (auto even = layout::balanced_partition(weights, shape.stages * shape.chunks());
      !even.empty()) {
    found.push_back(std::move(even));
  }
  if (shape.chunks() == 1) return found;
  if (auto filled = filled_stages(weights, shape); !filled.empty()) {
    found.push_back(std::move(filled));
  }
  return found;
}

}  // namespace

std::vector<int64_t> given_partition(const JobSpec& job, const schedule::ScheduleShape& shape) {
  if (!job.parallel.partition.empty()) return job.parallel.partition;
  const layout::PartitionReading reading =
      layout::read_partition_method(job.parallel.partition_method);
  const int64_t parts = shape.stages * shape.chunks();
  if (reading.method == layout::PartitionMethod::kParameters) {
    const bool ends_apart = schedule::place_of_chunk(shape, parts - 1).stage != 0;
    const bool copies_tied = model::reuses_embedding(job.model) && ends_apart;
    return layout::balanced_partition(layout::parameter_weights(job.model, copies_tied), parts);
  }
  if (reading.method == layout::PartitionMethod::kType) {
    return layout::balanced_partition(layout::type_weights(job.model, reading.pattern), parts);
  }
  return {};
}

layout::PartitionWeights seconds_of_chunks(const ModelSpec& model,
                                           const cost::LayerSeconds& seconds) {
  return layout::weights_by_layer(model, [&](const model::LayerSpec& layer) {
    const cost::CallSeconds& call = seconds.of(layer);
    return call.forward() + call.backward();
  });
}

std::vector<int64_t> blocks_of_stages(const schedule::ScheduleShape& shape,
                                      const std::vector<int64_t>& of_chunks) {
  std::vector<int64_t> blocks(static_cast<size_t>(shape.stages));
  for (size_t position = 0; position < of_chunks.size(); ++position) {
    const schedule::ChunkPlace place =
        schedule::place_of_chunk(shape, static_cast<int64_t>(position));
    blocks[static_cast<size_t>(place.stage)] += of_chunks[position];
  }
  return blocks;
}

std::vector<int64_t> filled_stages(const layout::PartitionWeights& weights,
                                   const schedule::ScheduleShape& shape) {
  const auto all = static_cast<int64_t>(weights.blocks.size());
  const int64_t least = shape.chunks();
  if (all < least * shape.stages) return {};
  const double each =
      std::accumulate(weights.blocks.begin(), weights.blocks.end(), 0.0) / static_cast<double>(all);
  const int64_t last = schedule::place_of_chunk(shape, shape.stages * least - 1).stage;
  std::vector<int64_t> blocks(static_cast<size_t>(shape.stages), least);
  std::vector<double> work(blocks.size(), static_cast<double>(least) * each);
  work.front() += weights.first;
  work[static_cast<size_t>(last)] += weights.last;
  for (int64_t left = all - least * shape.stages; left > 0; --left) {
    const auto idlest = std::min_element(work.begin(), work.end());
    *idlest += each;
    ++blocks[static_cast<size_t>(idlest - work.begin())];
  }
  return blocks;
}

bool gains_uneven_stages(const layout::PartitionWeights& weights,
                         const schedule::ScheduleShape& shape) {
  const auto blocks = static_cast<int64_t>(weights.blocks.size());
  const std::vector<int64_t> filled = filled_stages(weights, shape);
  if (filled.empty()) return false;
  return heaviest(weights, shape, layout::blocks_per_chunk(shape, blocks, filled)) <
         (1 - kLeastGain) * heaviest(weights, shape, layout::blocks_per_chunk(shape, blocks, {}));
}

std::string assign_blocks(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                          const choice::LayoutChoice& choice, Plan& plan) {
  const schedule::ScheduleShape shape = layout::schedule_shape(plan);
  const layout::PartitionReading reading =
      layout::read_partition_method(defaulted.job.parallel.partition_method);
  std::vector<int64_t>& partition = plan.job.parallel.partition;
  plan.job.parallel.partition_method.clear();
  if (shape.stages > 1) {
    if (auto given = given_partition(defaulted.job, shape); !given.empty()) partition = given;
  }
  // Chunks of unequal size are written one by one.
  const int64_t blocks = model::block_count(plan.job.model);
  if (shape.stages > 1 && shape.chunks() > 1 && blocks % (shape.stages * shape.chunks()) != 0) {
    partition = layout::blocks_per_chunk(shape, blocks, partition);
  }
  plan.predictions = prediction::predict(plan, pricer.played_step(choice, plan));
  if (shape.stages == 1) return "";
  if (reading.method == layout::PartitionMethod::kParameters) {
    return layers_of_stages(plan) + ": numbers of parameters as equal as whole layers allow";
  }
  if (reading.method == layout::PartitionMethod::kType) {
    return fmt::format("{}: equal numbers of the layers that match '{}'", layers_of_stages(plan),
                       reading.pattern);
  }
  if (!may_assign(defaulted)) return "";
  const bool asked = reading.method == layout::PartitionMethod::kAuto;
  const double least = least_share(defaulted.job);
  const bool fits = keeps_memory(plan);
  const layout::PartitionWeights weights =
      seconds_of_chunks(defaulted.job.model, pricer.costs(choice).seconds);
  const double now = heaviest(weights, shape, layout::blocks_per_chunk(shape, blocks, partition));
  const auto before = static_cast<double>(plan.predictions.step_ns);
  std::optional<Plan> best;
  for (const std::vector<int64_t>& found : balanced_partitions(weights, shape)) {
    const double then = heaviest(weights, shape, layout::blocks_per_chunk(shape, blocks, found));
    if (fits && then > least * now) continue;
    // Its memory is of no interest where it is no faster.
    if (fits && step_ns_with(pricer, choice, plan, found) >= least * before) continue;
    auto balanced = within_memory(pricer, choice, plan, found, weights, shape);
    if (!balanced || (best && balanced->predictions.step_ns >= best->predictions.step_ns)) continue;
    best = std::move(balanced);
  }
  const std::string own = layers_of_stages(plan);
  const std::string no_gain = asked ? own + ": the division with the shortest slowest stage" : "";
  if (!best) return no_gain;
  const auto after = static_cast<double>(best->predictions.step_ns);
  if (fits && after >= least * before) return no_gain;
  plan = std::move(*best);
  return fits ? fmt::format("{}: a step is {:.1f} % shorter than with {}", layers_of_stages(plan),
                            (1 - after / before) * 100, own)
              : fmt::format("{}: {} would not fit in memory", layers_of_stages(plan), own);
}

namespace {

double simulate(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                const choice::LayoutChoice& choice) {
  Plan plan = choice::resolve(defaulted.job, choice);
  const schedule::ScheduleShape shape = layout::schedule_shape(plan);
  std::vector<int64_t>& partition = plan.job.parallel.partition;
  plan.job.parallel.partition_method.clear();
  if (shape.stages > 1) {
    if (auto given = given_partition(defaulted.job, shape); !given.empty()) partition = given;
  }
  const int64_t own_ns = pricer.played_step(choice, plan).step_ns;
  int64_t least_ns = own_ns;
  if (shape.stages > 1 && may_assign(defaulted)) {
    const layout::PartitionWeights weights =
        seconds_of_chunks(defaulted.job.model, pricer.costs(choice).seconds);
    const int64_t blocks = model::block_count(plan.job.model);
    const double least = least_share(defaulted.job);
    const double now = heaviest(weights, shape, layout::blocks_per_chunk(shape, blocks, partition));
    for (std::vector<int64_t>& found : balanced_partitions(weights, shape)) {
      const std::vector<int64_t> chunks = layout::blocks_per_chunk(shape, blocks, found);
      if (heaviest(weights, shape, chunks) > least * now) continue;
      partition = std::move(found);
      const int64_t step_ns = pricer.played_step(choice, plan).step_ns;
      if (static_cast<double>(step_ns) < least * static_cast<double>(own_ns)) {
        least_ns = std::min(least_ns, step_ns);
      }
    }
  }
  return static_cast<double>(least_ns) * 1e-9;
}

}  // namespace

double simulated_step_s(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                        const choice::LayoutChoice& choice) {
  return pricer.simulated_steps().of(choice, [&] { return simulate(defaulted, pricer, choice); });
}

bool is_simulated(const JobSpec& job, const choice::LayoutChoice& choice) {
  return choice.pipeline > 1 || (cost::is_of_engine(job) && choice.world() > 1);
}

std::string layers_of_stages(const Plan& plan) {
  const schedule::ScheduleShape shape = layout::schedule_shape(plan);
  const std::vector<int64_t>& partition = plan.job.parallel.partition;
  std::string words;
  for (size_t i = 0; i < partition.size();) {
    size_t end = i;
    while (end < partition.size() && partition[end] == partition[i]) ++end;
    words += fmt::format("{}{}{}", words.empty() ? "" : ", ",
                         end - i > 1 ? fmt::format("{} x ", end - i) : "", partition[i]);
    i = end;
  }
  const bool chunks = static_cast<int64_t>(partition.size()) > shape.stages;
  return fmt::format("{} of {} layers", chunks ? "chunks" : "stages", words);
}

double stage_balance(const Plan& plan) {
  double most = 0, sum = 0;
  for (const RankPrediction& rank : plan.predictions.ranks) {
    const auto busy = static_cast<double>(rank.busy_ns);
    most = std::max(most, busy);
    sum += busy;
  }
  return sum > 0 ? most * static_cast<double>(plan.predictions.ranks.size()) / sum : 1;
}

}  // namespace smp::search
