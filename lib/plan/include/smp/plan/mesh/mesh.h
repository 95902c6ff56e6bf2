#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smp::mesh {

// Widths of the mesh axes. Data-parallel degree d = shard * replica; world = pipeline * tensor *
// context * d. Experts are no axis: they are spread over neighbours of one stage.
struct Degrees {
  int64_t pipeline = 1;
  int64_t tensor = 1;
  int64_t shard = 1;          // z: ranks over which one copy of the sharded state is spread
  int64_t replica = 1;        // r: how many such copies
  int64_t context = 1;        // c: ranks that share a sequence
  int64_t exchange = 1;       // of these, neighbours that exchange heads; the rest are a ring
  int64_t expert = 1;         // ranks of tensor x context x data that share a layer's experts
  int64_t expert_tensor = 1;  // ranks that share one expert's matrices; 1 in models without experts

  int64_t data() const { return shard * replica; }
  int64_t ring() const { return context / exchange; }
  int64_t world() const { return pipeline * tensor * context * data(); }
  bool operator==(const Degrees&) const = default;
};

struct Coord {
  int64_t pipeline = 0;
  int64_t tensor = 0;
  int64_t shard = 0;
  int64_t replica = 0;
  int64_t context = 0;

  // Position in the data-parallel group: the shard axis varies faster than the replica axis.
  int64_t data(const Degrees& degrees) const { return replica * degrees.shard + shard; }
  bool operator==(const Coord&) const = default;
};

// The groups of ranks that collectives run in.
enum class Axis {
  kWorld,        // everybody
  kPipeline,     // all coordinates but this one are the same, and so for
  kTensor,       //   each of these axes
  kContext,      //
  kRing,         // of kContext those that pass keys and values on
  kExchange,     // of kContext those that exchange heads
  kData,         // whose gradients are summed: context x data (SMP's RDP group)
  kShard,        // as kData, and same replica coordinate
  kReplica,      // as kData, and same shard and context coordinates
  kModel,        // same data coordinate: pipeline x tensor x context (SMP's MP group)
  kTensorData,   // same pipeline coordinate: tensor x context x data (SMP's DP group)
  kExpert,       // share the experts of a layer: see below, and so for
  kExpertData,   //   those that hold the same part of the experts: their gradients are summed
  kExpertShard,  //   of kExpertData those with the same replica coordinate
  kKvHead,       // tensor ranks that hold a copy of the same KV head (t > KV heads)
  kTied,         // first and last stage: holders of a tied embedding
};
std::string_view name_of(Axis axis);

// A Mesh maps a global rank to its place on the (pipeline, tensor, context, shard, replica) axes.
// Immutable; safe to read from any thread. The placement strategy is a permutation of the letters
// D, P, T: the right-most letter varies fastest over ranks. "cluster" is "DPT", "spread" is "TPD"
// (SMP v1). Within T the tensor axis varies faster than the context axis, within D the shard axis
// faster than the replica axis. From fast to slow, "DPT" is tensor, context, pipeline, shard,
// replica. Within the context axis, ranks that exchange heads are neighbours.
//
// Experts: the ranks of a stage, counted tensor first, then context, then data, are cut into runs
// of expert_tensor ranks. The ranks of a run share the matrices of the same experts. `expert` runs
// in a row, a block, hold all experts of a layer once. An expert group has one rank of each of
// these runs. The ranks with the same place in their blocks hold the same part of the experts.
class Mesh {
 public:
  // Throws ConfigError for a strategy that is no permutation of D, P, T.
  Mesh(Degrees degrees, std::string_view placement_strategy);

  const Degrees& degrees() const { return degrees_; }
  Coord coord_of(int64_t rank) const;
  int64_t rank_of(const Coord& coord) const;

  // Members of the group of `rank` along `axis`, ordered by their coordinate on it. Where a group
  // spans context and data, the context coordinate varies fastest.
  // kKvHead and kTied depend on the model as well: kv_copies is the number of tensor ranks that
  // share a KV head (1 = none); kTied is {first stage, last stage}.
  std::vector<int64_t> group(int64_t rank, Axis axis, int64_t kv_copies = 1) const;
  // Which of the `expert` parts of the experts a rank holds.
  int64_t expert_part(const Coord& self) const;

 private:
  // Its number among the ranks of its stage, and the rank of a number.
  int64_t place_of(const Coord& self) const;
  int64_t rank_at(int64_t pipeline, int64_t place) const;
  std::vector<int64_t> expert_group(const Coord& self) const;
  // The ranks of these places of a stage that have the same place in their blocks.
  std::vector<int64_t> same_experts(const Coord& self, int64_t begin, int64_t end) const;

  Degrees degrees_;
  std::string order_;  // e.g. "DPT"
};

}  // namespace smp::mesh
