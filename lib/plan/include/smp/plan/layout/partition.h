#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// The division of a model's blocks among the chunks of a pipeline. A stage without virtual stages
// is one chunk. The first chunk of the model has the embedding, the last one the head. Each chunk
// has one block or more; parallel.partition may leave the first or last chunk without. Pure; safe
// from any thread.
namespace smp::model {
struct LayerSpec;
}
namespace smp::schedule {
struct ScheduleShape;
}

namespace smp::layout {

// The methods of `parallel.partition_method`.
enum class PartitionMethod {
  kUnsaid,      // no key: even stages, or a faster division that the search finds
  kUniform,     // even stages
  kParameters,  // parameters, as DeepSpeed's partition_method
  kType,        // layers whose kind or name matches a regular expression, as DeepSpeed's type:regex
  kAuto,        // the planner's seconds
};

struct PartitionReading {
  PartitionMethod method = PartitionMethod::kUnsaid;
  std::string pattern;  // of kType
  std::string problem;  // what is wrong, in words that follow the key; empty = nothing
};
PartitionReading read_partition_method(std::string_view text);

// The quantity that the parts share as equally as possible.
struct PartitionWeights {
  std::vector<double> blocks;  // of the model, in order
  double first = 0;            // of the embedding, in the first chunk
  double last = 0;             // of the head, in the last chunk
};

// Weights by `weight_of`: one for each block, and sums for the embedding and the head.
PartitionWeights weights_by_layer(const ModelSpec& model,
                                  const std::function<double(const model::LayerSpec&)>& weight_of);

// Weights by number of parameters. `copies_tied`: the last stage has a copy of the token embedding.
PartitionWeights parameter_weights(const ModelSpec& model, bool copies_tied);

// 1 for a layer whose kind or name holds a match of the pattern (a POSIX extended regular
// expression, upper and lower case alike), else 0. Throws ConfigError where no layer does.
PartitionWeights type_weights(const ModelSpec& model, const std::string& pattern);

// Cuts the blocks into `parts` runs of one block or more. The cut minimizes the weight of the
// heaviest run, and then the sum of the squares. Exact, by dynamic programming over (run, last
// block): O(parts x blocks^2). `most` limits the blocks of each run; empty = no limit. An empty
// result means that no cut keeps the limits.
std::vector<int64_t> balanced_partition(const PartitionWeights& weights, int64_t parts,
                                        const std::vector<int64_t>& most = {});

// The first empty chunk of a partition: one with no block, no embedding and no head.
std::optional<int64_t> chunk_without_layers(const std::vector<int64_t>& partition,
                                            const ModelSpec& model);

// A partition has a number for each stage, or one for each of `chunks` chunks of every stage;
// nothing = any number of chunks. An empty partition fits.
std::optional<std::string> partition_length_problem(const std::vector<int64_t>& partition,
                                                    int64_t stages, std::optional<int64_t> chunks);

// Each stage has a block. `of_model` names the key that says how many the model has.
std::optional<std::string> stages_problem(int64_t stages, int64_t blocks,
                                          std::string_view of_model = "num_layers");

// Each of the `chunks` chunks of a stage has a block. `blocks`: of the stage that has the fewest.
std::optional<std::string> stage_chunks_problem(int64_t blocks, int64_t chunks);

// A partition adds up to the model's blocks.
std::optional<std::string> partition_sum_problem(const std::vector<int64_t>& partition,
                                                 int64_t blocks,
                                                 std::string_view of_model = "num_layers");

// Weight of each part of a partition.
std::vector<double> part_weights(const PartitionWeights& weights,
                                 const std::vector<int64_t>& partition);

// Blocks of each chunk, in the order of the model. `partition` has a number for each stage, whose
// blocks are dealt to its chunks as evenly as possible, or one for each chunk in the order of the
// model; empty = even stages, floor(L/p) + [i < L mod p]. Throws ConfigError where it does not fit.
std::vector<int64_t> blocks_per_chunk(const schedule::ScheduleShape& shape, int64_t num_layers,
                                      const std::vector<int64_t>& partition);

}  // namespace smp::layout
