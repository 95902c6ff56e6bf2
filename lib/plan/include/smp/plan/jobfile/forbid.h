#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Items of parallel.forbid: comparisons of a key of the layout with values, one or several joined
// by " and ": "tensor_parallel_degree=8", "micro_batch>=4", "pipeline=simple|zb_v",
// "sharding=parameters and sharded_data_parallel_degree>64". A layout for which all comparisons of
// an item hold is not chosen. Pure; safe from any thread.
namespace smp::jobfile {

// What a layout decides, so what an item can name.
enum class LayoutKey {
  kPipelineDegree,
  kTensorDegree,
  kContextDegree,
  kExchangeDegree,
  kExpertDegree,
  kExpertTensorDegree,
  kShardDegree,
  kVirtualDegree,
  kPipeline,
  kSharding,
  kSequenceParallel,
  kPlacement,
  kRecompute,
  kRecomputeLayers,
  kOffloadActivations,
  kOffloadOptimizer,
  kOffloadParameters,
  kMicroBatch,
  kMicrobatches,
  kPrecision,
};

enum class Relation { kEqual, kUnequal, kBelow, kAtMost, kAbove, kAtLeast };

struct ForbiddenValue {
  LayoutKey key = LayoutKey::kPipelineDegree;
  Relation relation = Relation::kEqual;
  // Several for kEqual and kUnequal ("one of"). Choices count from 0 in the order of their
  // enumerators; true is 1; of placement_strategy cluster is 0 and spread 1.
  std::vector<int64_t> values;

  bool holds(int64_t value) const;
};

// The comparisons of an item, or what is wrong with its text: words that follow "item 2".
struct ForbidReading {
  std::vector<ForbiddenValue> comparisons;
  std::string problem;
};
ForbidReading read_forbid(std::string_view text);

// Names of the keys, without their section, in the order of LayoutKey.
const std::vector<std::string>& forbiddable_keys();

}  // namespace smp::jobfile
