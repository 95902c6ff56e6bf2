#include "smp/plan/mesh.h"

#include <algorithm>

#include "smp/plan/check.h"
#include "smp/plan/errors.h"

namespace smp {
namespace {

std::string order_of(std::string_view strategy) {
  if (strategy == "cluster") return "DPT";
  if (strategy == "spread") return "TPD";
  std::string letters(strategy);
  std::sort(letters.begin(), letters.end());
  if (letters != "DPT") {
    throw ConfigError("placement_strategy '" + std::string(strategy) +
                      "' is not 'cluster', 'spread' or a permutation of the letters D, P and T");
  }
  return std::string(strategy);
}

int64_t width_of(char letter, const Degrees& degrees) {
  switch (letter) {
    case 'D': return degrees.data();
    case 'P': return degrees.pipeline;
    case 'T': return degrees.tensor;
  }
  check_failed(__FILE__, __LINE__, "unknown axis letter");
}

}  // namespace

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::kWorld: return "world";
    case Axis::kPipeline: return "pipeline";
    case Axis::kTensor: return "tensor";
    case Axis::kData: return "data";
    case Axis::kShard: return "shard";
    case Axis::kReplica: return "replica";
    case Axis::kModel: return "model";
    case Axis::kTensorData: return "tensor_data";
    case Axis::kKvHead: return "kv_head";
    case Axis::kTied: return "tied";
  }
  check_failed(__FILE__, __LINE__, "unknown axis");
}

Mesh::Mesh(Degrees degrees, std::string_view placement_strategy)
    : degrees_(degrees), order_(order_of(placement_strategy)) {
  SMP_CHECK(degrees.pipeline >= 1 && degrees.tensor >= 1);
  SMP_CHECK(degrees.shard >= 1 && degrees.replica >= 1);
}

Coord Mesh::coord_of(int64_t rank) const {
  SMP_CHECK(rank >= 0 && rank < degrees_.world());
  Coord coord;
  for (auto letter = order_.rbegin(); letter != order_.rend(); ++letter) {
    const int64_t width = width_of(*letter, degrees_);
    const int64_t index = rank % width;
    rank /= width;
    if (*letter == 'P') coord.pipeline = index;
    if (*letter == 'T') coord.tensor = index;
    if (*letter == 'D') {
      coord.shard = index % degrees_.shard;
      coord.replica = index / degrees_.shard;
    }
  }
  return coord;
}

int64_t Mesh::rank_of(const Coord& coord) const {
  int64_t rank = 0;
  for (const char letter : order_) {
    const int64_t index = letter == 'P'   ? coord.pipeline
                          : letter == 'T' ? coord.tensor
                                          : coord.data(degrees_);
    rank = rank * width_of(letter, degrees_) + index;
  }
  return rank;
}

std::vector<int64_t> Mesh::group(int64_t rank, Axis axis, int64_t kv_copies) const {
  const Coord self = coord_of(rank);
  std::vector<int64_t> ranks;
  // Half-open range of coordinates on one axis: all of it where the group spans that axis.
  struct Range {
    int64_t begin, end;
  };
  const auto range = [](bool spans, int64_t own, int64_t width) {
    return spans ? Range{0, width} : Range{own, own + 1};
  };
  const auto collect = [&](Range pipeline, Range tensor, Range replica, Range shard) {
    for (int64_t p = pipeline.begin; p < pipeline.end; ++p)
      for (int64_t t = tensor.begin; t < tensor.end; ++t)
        for (int64_t r = replica.begin; r < replica.end; ++r)
          for (int64_t s = shard.begin; s < shard.end; ++s)
            ranks.push_back(rank_of({.pipeline = p, .tensor = t, .shard = s, .replica = r}));
  };
  const auto spanning = [&](bool pipeline, bool tensor, bool replica, bool shard) {
    collect(range(pipeline, self.pipeline, degrees_.pipeline),
            range(tensor, self.tensor, degrees_.tensor),
            range(replica, self.replica, degrees_.replica),
            range(shard, self.shard, degrees_.shard));
  };
  switch (axis) {
    case Axis::kWorld:
      for (int64_t i = 0; i < degrees_.world(); ++i) ranks.push_back(i);
      return ranks;
    case Axis::kPipeline: spanning(true, false, false, false); return ranks;
    case Axis::kTensor: spanning(false, true, false, false); return ranks;
    case Axis::kData: spanning(false, false, true, true); return ranks;
    case Axis::kShard: spanning(false, false, false, true); return ranks;
    case Axis::kReplica: spanning(false, false, true, false); return ranks;
    case Axis::kModel: spanning(true, true, false, false); return ranks;
    case Axis::kTensorData: spanning(false, true, true, true); return ranks;
    case Axis::kKvHead: {
      SMP_CHECK(kv_copies >= 1 && degrees_.tensor % kv_copies == 0);
      const int64_t first = self.tensor - self.tensor % kv_copies;
      collect(range(false, self.pipeline, 0), {first, first + kv_copies},
              range(false, self.replica, 0), range(false, self.shard, 0));
      return ranks;
    }
    case Axis::kTied: {
      Coord end = self;
      end.pipeline = 0;
      ranks.push_back(rank_of(end));
      if (degrees_.pipeline > 1) {
        end.pipeline = degrees_.pipeline - 1;
        ranks.push_back(rank_of(end));
      }
      return ranks;
    }
  }
  check_failed(__FILE__, __LINE__, "unknown axis");
}

}  // namespace smp
