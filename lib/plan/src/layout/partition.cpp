#include "smp/plan/layout/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "model/layer_pattern.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/schedule/schedule_shape.h"

namespace smp::layout {
namespace {

constexpr std::string_view kTypePrefix = "type:";

// The dynamic program: best[k][n] is the least of `join` over the cuts of the first n blocks in k
// runs, and from[k][n] where the last of them begins.
class Cutter {
 public:
  Cutter(const PartitionWeights& weights, int64_t parts, const std::vector<int64_t>& most)
      : weights_(weights), parts_(static_cast<size_t>(parts)), most_(most), sums_{0} {
    for (const double weight : weights.blocks) sums_.push_back(sums_.back() + weight);
  }

  // The smallest possible weight of the heaviest run; kNone = no cut keeps the limits. Runs above
  // `bound` are not tried.
  double least_heaviest(double bound) {
    solve([](double before, double run) { return std::max(before, run); }, bound);
    return best_[parts_][blocks()];
  }

  // The cut with the smallest sum of squares, among cuts without a run above `limit`.
  std::vector<int64_t> evenest(double limit) {
    solve([](double before, double run) { return before + run * run; }, limit);
    std::vector<int64_t> partition(parts_);
    size_t end = blocks();
    for (size_t part = parts_; part > 0; --part) {
      const size_t begin = from_[part][end];
      partition[part - 1] = static_cast<int64_t>(end - begin);
      end = begin;
    }
    return partition;
  }

  static constexpr double kNone = std::numeric_limits<double>::infinity();

 private:
  size_t blocks() const { return weights_.blocks.size(); }

  double run(size_t part, size_t begin, size_t end) const {
    double weight = sums_[end] - sums_[begin];
    if (part == 1) weight += weights_.first;
    if (part == parts_) weight += weights_.last;
    return weight;
  }

  template <class Join>
  void solve(Join join, double limit) {
    best_.assign(parts_ + 1, std::vector<double>(blocks() + 1, kNone));
    from_.assign(parts_ + 1, std::vector<size_t>(blocks() + 1, 0));
    best_[0][0] = 0;
    for (size_t part = 1; part <= parts_; ++part) {
      // Each run after this one needs a block too.
      for (size_t end = part; end + (parts_ - part) <= blocks(); ++end) {
        const size_t longest = most_.empty() ? end : static_cast<size_t>(most_[part - 1]);
        for (size_t begin = end; begin-- > part - 1 && end - begin <= longest;) {
          const double weight = run(part, begin, end);
          if (weight > limit) break;  // and longer runs weigh no less
          const double joined = join(best_[part - 1][begin], weight);
          // Among equal cuts the longer run comes first, as in an even partition.
          if (joined < best_[part][end]) {
            best_[part][end] = joined;
            from_[part][end] = begin;
          }
        }
      }
    }
  }

  const PartitionWeights& weights_;
  size_t parts_;
  const std::vector<int64_t>& most_;
  std::vector<double> sums_;
  std::vector<std::vector<double>> best_;
  std::vector<std::vector<size_t>> from_;
};

std::vector<int64_t> even(int64_t num_layers, int64_t stages) {
  if (const auto problem = stages_problem(stages, num_layers)) throw ConfigError(*problem);
  std::vector<int64_t> blocks(static_cast<size_t>(stages), num_layers / stages);
  for (int64_t i = 0; i < num_layers % stages; ++i) ++blocks[static_cast<size_t>(i)];
  return blocks;
}

// The first part without blocks. `ends_may`: the first and last parts hold other layers.
std::optional<int64_t> empty_chunk(const std::vector<int64_t>& partition, bool ends_may) {
  for (size_t i = 0; i < partition.size(); ++i) {
    const bool is_end = i == 0 || i + 1 == partition.size();
    if (partition[i] < 1 && !(ends_may && is_end)) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

void require_sum(const std::vector<int64_t>& partition, int64_t num_layers) {
  if (const auto item = empty_chunk(partition, true)) {
    throw ConfigError(fmt::format(
        "partition item {} is 0: only the first and the last can be without layers", *item + 1));
  }
  if (const auto problem = partition_sum_problem(partition, num_layers)) {
    throw ConfigError(*problem);
  }
}

}  // namespace

PartitionReading read_partition_method(std::string_view text) {
  PartitionReading reading;
  if (text.empty()) return reading;
  if (text == "uniform") {
    reading.method = PartitionMethod::kUniform;
  } else if (text == "parameters") {
    reading.method = PartitionMethod::kParameters;
  } else if (text == "auto") {
    reading.method = PartitionMethod::kAuto;
  } else if (text.starts_with(kTypePrefix)) {
    reading.method = PartitionMethod::kType;
    reading.pattern = text.substr(kTypePrefix.size());
    reading.problem = reading.pattern.empty()
                          ? "needs a regular expression after type:, as in type:block"
                          : model::LayerPattern(reading.pattern).problem();
  } else {
    reading.problem =
        fmt::format("must be uniform, parameters, type:REGEX or auto, not '{}'", text);
  }
  return reading;
}

PartitionWeights weights_by_layer(const ModelSpec& model,
                                  const std::function<double(const model::LayerSpec&)>& weight_of) {
  PartitionWeights weights;
  const auto cut = static_cast<size_t>(model::block_count(model));
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    const double weight = weight_of(layer);
    if (layer.kind == model::LayerKind::kEmbedding) {
      weights.first += weight;
    } else if (weights.blocks.size() < cut) {
      weights.blocks.push_back(weight);
    } else {
      weights.last += weight;
    }
  }
  return weights;
}

PartitionWeights parameter_weights(const ModelSpec& model, bool copies_tied) {
  PartitionWeights weights = weights_by_layer(model, [&](const model::LayerSpec& layer) {
    double sum = 0;
    for (const model::ParameterSpec& parameter : model::parameters_of(model, layer)) {
      sum += static_cast<double>(parameter.size());
    }
    return sum;
  });
  if (copies_tied) weights.last += model::parameter_counts(model).vocabulary.all();
  return weights;
}

PartitionWeights type_weights(const ModelSpec& model, const std::string& pattern) {
  const model::LayerPattern matcher(pattern);
  if (!matcher.problem().empty()) throw ConfigError("partition_method " + matcher.problem());
  double matches = 0;
  PartitionWeights weights = weights_by_layer(model, [&](const model::LayerSpec& layer) {
    const double weight = matcher.matches(model, layer) ? 1 : 0;
    matches += weight;
    return weight;
  });
  if (matches == 0) {
    throw ConfigError(fmt::format("partition_method type:{} matches no layer: the model has {}",
                                  pattern, model::kinds_in_words(model)));
  }
  return weights;
}

std::vector<int64_t> balanced_partition(const PartitionWeights& weights, int64_t parts,
                                        const std::vector<int64_t>& most) {
  SMP_CHECK(parts >= 1 && (most.empty() || static_cast<int64_t>(most.size()) == parts));
  if (static_cast<int64_t>(weights.blocks.size()) < parts) return {};
  // Sums of seconds are rounded, so equal sums may differ in their last digits.
  constexpr double kSlack = 1 + 1e-9;
  double bound = Cutter::kNone;
  if (most.empty()) {
    const auto of_even =
        part_weights(weights, even(static_cast<int64_t>(weights.blocks.size()), parts));
    bound = *std::max_element(of_even.begin(), of_even.end()) * kSlack;
  }
  Cutter cutter(weights, parts, most);
  const double heaviest = cutter.least_heaviest(bound);
  if (heaviest == Cutter::kNone) return {};
  return cutter.evenest(heaviest * kSlack);
}

std::optional<int64_t> chunk_without_layers(const std::vector<int64_t>& partition,
                                            const ModelSpec& model) {
  return empty_chunk(partition, !model::is_list(model));
}

std::vector<double> part_weights(const PartitionWeights& weights,
                                 const std::vector<int64_t>& partition) {
  std::vector<double> parts;
  auto block = weights.blocks.begin();
  for (const int64_t count : partition) {
    parts.push_back(std::accumulate(block, block + count, 0.0));
    block += count;
  }
  parts.front() += weights.first;
  parts.back() += weights.last;
  return parts;
}

std::optional<std::string> partition_length_problem(const std::vector<int64_t>& partition,
                                                    int64_t stages, std::optional<int64_t> chunks) {
  const auto entries = static_cast<int64_t>(partition.size());
  if (entries == 0 || entries == stages) return std::nullopt;
  if (entries % stages == 0 && (!chunks || entries == stages * *chunks)) return std::nullopt;
  std::string parts = "stage";
  if (!chunks) {
    parts += ", or for each chunk";
  } else if (*chunks > 1) {
    parts += fmt::format(", or for each of the {} chunks", stages * *chunks);
  }
  return fmt::format(
      "partition has {} {}, pipeline_parallel_degree is {}: give one layer count for each {}",
      entries, entries == 1 ? "entry" : "entries", stages, parts);
}

std::optional<std::string> stages_problem(int64_t stages, int64_t blocks,
                                          std::string_view of_model) {
  if (stages <= blocks) return std::nullopt;
  return fmt::format(
      "pipeline_parallel_degree ({}) exceeds {} ({}): every stage needs at least one layer", stages,
      of_model, blocks);
}

std::optional<std::string> stage_chunks_problem(int64_t blocks, int64_t chunks) {
  if (blocks >= chunks) return std::nullopt;
  return fmt::format(
      "a stage has {} {}, fewer than its {} chunks: every chunk needs at least one layer", blocks,
      blocks == 1 ? "layer" : "layers", chunks);
}

std::optional<std::string> partition_sum_problem(const std::vector<int64_t>& partition,
                                                 int64_t blocks, std::string_view of_model) {
  const int64_t sum = std::accumulate(partition.begin(), partition.end(), int64_t{0});
  if (sum == blocks) return std::nullopt;
  return fmt::format("partition adds up to {} layers, but {} is {}", sum, of_model, blocks);
}

std::vector<int64_t> blocks_per_chunk(const schedule::ScheduleShape& shape, int64_t num_layers,
                                      const std::vector<int64_t>& partition) {
  const int64_t stages = shape.stages;
  const int64_t chunks = shape.chunks();
  if (const auto problem = partition_length_problem(partition, stages, chunks)) {
    throw ConfigError(*problem);
  }
  if (static_cast<int64_t>(partition.size()) == stages * chunks) {
    require_sum(partition, num_layers);
    return partition;
  }
  if (!partition.empty()) require_sum(partition, num_layers);
  const std::vector<int64_t> of_stage = partition.empty() ? even(num_layers, stages) : partition;
  const int64_t fewest = *std::min_element(of_stage.begin(), of_stage.end());
  if (const auto problem = stage_chunks_problem(fewest, chunks)) throw ConfigError(*problem);
  std::vector<int64_t> of_chunk;
  for (int64_t position = 0; position < stages * chunks; ++position) {
    const schedule::ChunkPlace place = schedule::place_of_chunk(shape, position);
    const int64_t blocks = of_stage[static_cast<size_t>(place.stage)];
    of_chunk.push_back(blocks / chunks + (place.chunk < blocks % chunks ? 1 : 0));
  }
  return of_chunk;
}

}  // namespace smp::layout
