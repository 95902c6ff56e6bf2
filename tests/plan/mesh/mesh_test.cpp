#include "smp/plan/mesh/mesh.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::mesh;

namespace {

using Groups = std::vector<std::vector<int64_t>>;

// Every group of the axis once, in the order of its smallest member.
Groups groups_of(const Mesh& mesh, Axis axis) {
  Groups groups;
  for (int64_t rank = 0; rank < mesh.degrees().world(); ++rank) {
    std::vector<int64_t> group = mesh.group(rank, axis);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

// The rows {rdp_rank, pp_rank, tp_rank} of SMP's tables, by rank.
Groups table_of(std::string_view strategy) {
  const Mesh mesh({.pipeline = 2, .tensor = 2, .replica = 2}, strategy);
  Groups rows;
  for (int64_t rank = 0; rank < 8; ++rank) {
    const Coord c = mesh.coord_of(rank);
    rows.push_back({c.data(mesh.degrees()), c.pipeline, c.tensor});
  }
  return rows;
}

// rank = weights . (rdp_rank, pp_rank, tp_rank), as SMP writes it.
Groups table_with_weights(int64_t rdp, int64_t pp, int64_t tp) {
  Groups rows(8);
  for (int64_t d = 0; d < 2; ++d)
    for (int64_t p = 0; p < 2; ++p)
      for (int64_t t = 0; t < 2; ++t)
        rows[static_cast<size_t>(rdp * d + pp * p + tp * t)] = {d, p, t};
  return rows;
}

}  // namespace

TEST_CASE("SMP's 8-rank groups with two partitions: cluster") {
  const Mesh mesh({.pipeline = 2, .replica = 4}, "cluster");
  CHECK(groups_of(mesh, Axis::kModel) == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_of(mesh, Axis::kTensorData) == Groups{{0, 2, 4, 6}, {1, 3, 5, 7}});
}

TEST_CASE("SMP's 8-rank groups with two partitions: spread") {
  const Mesh mesh({.pipeline = 2, .replica = 4}, "spread");
  CHECK(groups_of(mesh, Axis::kModel) == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(groups_of(mesh, Axis::kTensorData) == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
}

TEST_CASE("SMP's 8-rank tables: tensor, pipeline and reduced-data degrees of 2") {
  CHECK(table_of("DPT") == table_with_weights(4, 2, 1));
  CHECK(table_of("PTD") == table_with_weights(1, 4, 2));
  CHECK(table_of("DPT")[1] == std::vector<int64_t>{0, 0, 1});
  CHECK(table_of("DPT")[2] == std::vector<int64_t>{0, 1, 0});
  CHECK(table_of("DPT")[4] == std::vector<int64_t>{1, 0, 0});
}

TEST_CASE("the right-most letter of the strategy varies fastest, for all permutations") {
  CHECK(table_of("DTP") == table_with_weights(4, 1, 2));
  CHECK(table_of("PDT") == table_with_weights(2, 4, 1));
  CHECK(table_of("TDP") == table_with_weights(2, 1, 4));
  CHECK(table_of("TPD") == table_with_weights(1, 2, 4));
  CHECK(table_of("cluster") == table_of("DPT"));
  CHECK(table_of("spread") == table_of("TPD"));
}

TEST_CASE("the tensor, pipeline and reduced-data groups of DPT and PTD") {
  const Degrees degrees{.pipeline = 2, .tensor = 2, .replica = 2};
  const Mesh dpt(degrees, "DPT");
  CHECK(groups_of(dpt, Axis::kTensor) == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_of(dpt, Axis::kPipeline) == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(groups_of(dpt, Axis::kData) == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(groups_of(dpt, Axis::kModel) == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(groups_of(dpt, Axis::kTensorData) == Groups{{0, 4, 1, 5}, {2, 6, 3, 7}});
  CHECK(groups_of(dpt, Axis::kTied) == groups_of(dpt, Axis::kPipeline));
  const Mesh ptd(degrees, "PTD");
  CHECK(groups_of(ptd, Axis::kData) == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_of(ptd, Axis::kTensor) == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(groups_of(ptd, Axis::kPipeline) == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
}

TEST_CASE("8 GPUs, tensor 2, pipeline 1: SMP's dp is 8 and its rdp 4") {
  const Mesh mesh({.tensor = 2, .replica = 4}, "cluster");
  CHECK(mesh.group(5, Axis::kTensorData).size() == 8);
  CHECK(mesh.group(5, Axis::kData) == std::vector<int64_t>{1, 3, 5, 7});
}

TEST_CASE("inside D the shard axis varies faster than the replica axis") {
  const Mesh mesh({.pipeline = 1, .tensor = 2, .shard = 2, .replica = 2}, "cluster");
  CHECK(mesh.coord_of(2) == Coord{.tensor = 0, .shard = 1, .replica = 0});
  CHECK(mesh.coord_of(5) == Coord{.tensor = 1, .shard = 0, .replica = 1});
  CHECK(mesh.group(5, Axis::kShard) == std::vector<int64_t>{5, 7});
  CHECK(mesh.group(5, Axis::kReplica) == std::vector<int64_t>{1, 5});
  CHECK(mesh.group(5, Axis::kData) == std::vector<int64_t>{1, 3, 5, 7});
}

TEST_CASE("neighbouring tensor ranks share a KV head") {
  const Mesh mesh({.pipeline = 2, .tensor = 4, .replica = 2}, "cluster");
  CHECK(mesh.group(6, Axis::kKvHead, 2) == std::vector<int64_t>{6, 7});
  CHECK(mesh.group(6, Axis::kKvHead, 4) == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(mesh.group(6, Axis::kKvHead) == std::vector<int64_t>{6});
}

TEST_CASE("a tied embedding is held by the first and the last stage") {
  const Mesh mesh({.pipeline = 3, .tensor = 2}, "cluster");
  CHECK(mesh.group(3, Axis::kTied) == std::vector<int64_t>{1, 5});
  CHECK(Mesh({.tensor = 2}, "cluster").group(1, Axis::kTied) == std::vector<int64_t>{1});
}

TEST_CASE("rank_of undoes coord_of for every strategy, and odd degrees") {
  const Degrees degrees{.pipeline = 3, .tensor = 2, .shard = 5, .replica = 2};
  for (const char* strategy : {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}) {
    const Mesh mesh(degrees, strategy);
    for (int64_t rank = 0; rank < degrees.world(); ++rank) {
      CHECK(mesh.rank_of(mesh.coord_of(rank)) == rank);
    }
  }
}

TEST_CASE("a strategy that is no permutation is refused") {
  for (const char* strategy : {"DP", "DPTT", "DDT", "dpt", "", "Cluster"}) {
    CHECK_THROWS_WITH_AS(Mesh({}, strategy),
                         (std::string("placement_strategy '") + strategy +
                          "' is not 'cluster', 'spread' or a permutation of the letters D, P and T")
                             .c_str(),
                         ConfigError);
  }
}

TEST_CASE("axes have names") {
  CHECK(name_of(Axis::kWorld) == "world");
  CHECK(name_of(Axis::kTensorData) == "tensor_data");
  CHECK(name_of(Axis::kKvHead) == "kv_head");
}

TEST_CASE("context varies faster than data and stages, and slower than tensor") {
  const Mesh mesh({.pipeline = 2, .tensor = 2, .shard = 2, .context = 2}, "cluster");
  CHECK(mesh.degrees().world() == 16);
  for (int64_t rank = 0; rank < 16; ++rank) {
    const Coord coord = mesh.coord_of(rank);
    CHECK(mesh.rank_of(coord) == rank);
    CHECK(rank == ((coord.shard * 2 + coord.pipeline) * 2 + coord.context) * 2 + coord.tensor);
  }
  using Ranks = std::vector<int64_t>;
  CHECK(mesh.group(0, Axis::kTensor) == Ranks{0, 1});
  CHECK(mesh.group(1, Axis::kContext) == Ranks{1, 3});
  CHECK(mesh.group(0, Axis::kPipeline) == Ranks{0, 4});
  CHECK(mesh.group(0, Axis::kData) == Ranks{0, 2, 8, 10});
  CHECK(mesh.group(0, Axis::kShard) == Ranks{0, 2, 8, 10});
  CHECK(mesh.group(3, Axis::kReplica) == Ranks{3});
  CHECK(mesh.group(0, Axis::kModel) == Ranks{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(name_of(Axis::kContext) == "context");
}

TEST_CASE("experts are spread over neighbours of a stage: tensor, then context, then data") {
  using Ranks = std::vector<int64_t>;
  // Eight ranks of one stage; each expert's matrices lie on two neighbours, four pairs have all.
  const Mesh pairs({.tensor = 2, .shard = 4, .expert = 4, .expert_tensor = 2}, "cluster");
  CHECK(pairs.group(0, Axis::kExpert) == Ranks{0, 2, 4, 6});
  CHECK(pairs.group(5, Axis::kExpert) == Ranks{1, 3, 5, 7});
  // Two copies of all the experts.
  const Mesh copies({.tensor = 2, .shard = 4, .expert = 4, .expert_tensor = 1}, "cluster");
  CHECK(copies.group(2, Axis::kExpert) == Ranks{0, 1, 2, 3});
  CHECK(copies.group(7, Axis::kExpert) == Ranks{4, 5, 6, 7});
  // Groups stay on their stage.
  const Mesh stages({.pipeline = 2, .tensor = 1, .shard = 2, .context = 2, .expert = 4}, "cluster");
  CHECK(stages.group(0, Axis::kExpert) == Ranks{0, 1, 4, 5});
  CHECK(stages.group(2, Axis::kExpert) == Ranks{2, 3, 6, 7});
  CHECK(name_of(Axis::kExpert) == "expert");
  CHECK(copies.expert_part(copies.coord_of(6)) == 2);
  CHECK(stages.expert_part(stages.coord_of(7)) == 3);
}

TEST_CASE("ranks with the same part of the experts are those with the same place in their blocks") {
  using Ranks = std::vector<int64_t>;
  const Mesh mesh({.tensor = 2, .shard = 2, .replica = 2, .expert = 2, .expert_tensor = 1},
                  "cluster");
  CHECK(mesh.group(0, Axis::kExpertData) == Ranks{0, 2, 4, 6});
  CHECK(mesh.group(3, Axis::kExpertData) == Ranks{1, 3, 5, 7});
  CHECK(mesh.group(0, Axis::kExpertShard) == Ranks{0, 2});
  CHECK(mesh.group(7, Axis::kExpertShard) == Ranks{5, 7});
  CHECK(mesh.group(7, Axis::kReplica) == Ranks{3, 7});
  // A block is as large as a replica: nobody shares the states of its experts.
  const Mesh whole({.shard = 2, .replica = 2, .expert = 2}, "cluster");
  CHECK(whole.group(1, Axis::kExpertShard) == Ranks{1});
  CHECK(whole.group(1, Axis::kExpertData) == Ranks{1, 3});
  // On the second stage, by context ranks first.
  const Mesh stages({.pipeline = 2, .shard = 2, .context = 2, .expert = 2}, "cluster");
  CHECK(stages.group(2, Axis::kExpert) == Ranks{2, 3});
  CHECK(stages.group(2, Axis::kExpertData) == Ranks{2, 6});
  CHECK(name_of(Axis::kExpertData) == "expert_data");
  CHECK(name_of(Axis::kExpertShard) == "expert_shard");
}
