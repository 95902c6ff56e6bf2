#include "smp/plan/mesh/mesh.h"

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"

namespace smp::mesh {
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
    case 'T': return degrees.tensor * degrees.context;
  }
  check_failed(__FILE__, __LINE__, "unknown axis letter");
}

}  // namespace

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::kWorld: return "world";
    case Axis::kPipeline: return "pipeline";
    case Axis::kTensor: return "tensor";
    case Axis::kContext: return "context";
    case Axis::kRing: return "ring";
    case Axis::kExchange: return "exchange";
    case Axis::kData: return "data";
    case Axis::kShard: return "shard";
    case Axis::kReplica: return "replica";
    case Axis::kModel: return "model";
    case Axis::kTensorData: return "tensor_data";
    case Axis::kExpert: return "expert";
    case Axis::kExpertData: return "expert_data";
    case Axis::kExpertShard: return "expert_shard";
    case Axis::kKvHead: return "kv_head";
    case Axis::kTied: return "tied";
  }
  check_failed(__FILE__, __LINE__, "unknown axis");
}

Mesh::Mesh(Degrees degrees, std::string_view placement_strategy)
    : degrees_(degrees), order_(order_of(placement_strategy)) {
  SMP_CHECK(degrees.pipeline >= 1 && degrees.tensor >= 1);
  SMP_CHECK(degrees.shard >= 1 && degrees.replica >= 1);
  SMP_CHECK(degrees.context >= 1 && degrees.expert >= 1 && degrees.expert_tensor >= 1);
  SMP_CHECK(degrees.exchange >= 1 && degrees.context % degrees.exchange == 0);
  SMP_CHECK_EQ(
      degrees.tensor * degrees.context * degrees.data() % (degrees.expert * degrees.expert_tensor),
      0);
}

Coord Mesh::coord_of(int64_t rank) const {
  SMP_CHECK(rank >= 0 && rank < degrees_.world());
  Coord coord;
  for (auto letter = order_.rbegin(); letter != order_.rend(); ++letter) {
    const int64_t width = width_of(*letter, degrees_);
    const int64_t index = rank % width;
    rank /= width;
    if (*letter == 'P') coord.pipeline = index;
    if (*letter == 'T') {
      coord.tensor = index % degrees_.tensor;
      coord.context = index / degrees_.tensor;
    }
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
                          : letter == 'T' ? coord.context * degrees_.tensor + coord.tensor
                                          : coord.data(degrees_);
    rank = rank * width_of(letter, degrees_) + index;
  }
  return rank;
}

int64_t Mesh::place_of(const Coord& self) const {
  const int64_t inner = degrees_.tensor * degrees_.context;
  return self.data(degrees_) * inner + self.context * degrees_.tensor + self.tensor;
}

int64_t Mesh::rank_at(int64_t pipeline, int64_t place) const {
  const int64_t inner = degrees_.tensor * degrees_.context;
  const int64_t data = place / inner;
  return rank_of({.pipeline = pipeline,
                  .tensor = place % degrees_.tensor,
                  .shard = data % degrees_.shard,
                  .replica = data / degrees_.shard,
                  .context = place % inner / degrees_.tensor});
}

int64_t Mesh::expert_part(const Coord& self) const {
  return place_of(self) / degrees_.expert_tensor % degrees_.expert;
}

std::vector<int64_t> Mesh::expert_group(const Coord& self) const {
  const int64_t own = place_of(self), run = degrees_.expert_tensor;
  const int64_t first = own - own % (run * degrees_.expert) + own % run;
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < degrees_.expert; ++i) {
    ranks.push_back(rank_at(self.pipeline, first + i * run));
  }
  return ranks;
}

std::vector<int64_t> Mesh::same_experts(const Coord& self, int64_t begin, int64_t end) const {
  const int64_t block = degrees_.expert * degrees_.expert_tensor;
  const int64_t own = place_of(self) % block;
  std::vector<int64_t> ranks;
  for (int64_t place = begin; place < end; ++place) {
    if (place % block == own) ranks.push_back(rank_at(self.pipeline, place));
  }
  return ranks;
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
  struct Spans {
    bool pipeline = false, tensor = false, context = false, replica = false, shard = false;
  };
  const auto collect = [&](const Spans& spans, Range tensor) {
    const Range pipeline = range(spans.pipeline, self.pipeline, degrees_.pipeline);
    const Range context = range(spans.context, self.context, degrees_.context);
    const Range replica = range(spans.replica, self.replica, degrees_.replica);
    const Range shard = range(spans.shard, self.shard, degrees_.shard);
    const auto add = [&](int64_t p, int64_t c, int64_t t, int64_t r, int64_t s) {
      ranks.push_back(
          rank_of({.pipeline = p, .tensor = t, .shard = s, .replica = r, .context = c}));
    };
    const bool spans_data = spans.replica || spans.shard;
    for (int64_t p = pipeline.begin; p < pipeline.end; ++p) {
      if (!spans_data) {
        for (int64_t c = context.begin; c < context.end; ++c)
          for (int64_t t = tensor.begin; t < tensor.end; ++t)
            add(p, c, t, self.replica, self.shard);
        continue;
      }
      for (int64_t t = tensor.begin; t < tensor.end; ++t)
        for (int64_t r = replica.begin; r < replica.end; ++r)
          for (int64_t s = shard.begin; s < shard.end; ++s)
            for (int64_t c = context.begin; c < context.end; ++c) add(p, c, t, r, s);
    }
  };
  // Of the context ranks those from `first` on, `stride` apart.
  const auto among_context = [&](int64_t first, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      Coord member = self;
      member.context = first + i * stride;
      ranks.push_back(rank_of(member));
    }
  };
  const auto spanning = [&](const Spans& spans) {
    collect(spans, range(spans.tensor, self.tensor, degrees_.tensor));
  };
  switch (axis) {
    case Axis::kWorld:
      for (int64_t i = 0; i < degrees_.world(); ++i) ranks.push_back(i);
      return ranks;
    case Axis::kPipeline: spanning({.pipeline = true}); return ranks;
    case Axis::kTensor: spanning({.tensor = true}); return ranks;
    case Axis::kContext: spanning({.context = true}); return ranks;
    case Axis::kRing:
      among_context(self.context % degrees_.exchange, degrees_.exchange, degrees_.ring());
      return ranks;
    case Axis::kExchange:
      among_context(self.context - self.context % degrees_.exchange, 1, degrees_.exchange);
      return ranks;
    case Axis::kData: spanning({.context = true, .replica = true, .shard = true}); return ranks;
    case Axis::kShard: spanning({.context = true, .shard = true}); return ranks;
    case Axis::kReplica: spanning({.replica = true}); return ranks;
    case Axis::kModel: spanning({.pipeline = true, .tensor = true, .context = true}); return ranks;
    case Axis::kTensorData:
      spanning({.tensor = true, .context = true, .replica = true, .shard = true});
      return ranks;
    case Axis::kExpert: return expert_group(self);
    case Axis::kExpertData:
      return same_experts(self, 0, degrees_.tensor * degrees_.context * degrees_.data());
    case Axis::kExpertShard: {
      const int64_t of_replica = degrees_.tensor * degrees_.context * degrees_.shard;
      return same_experts(self, self.replica * of_replica, (self.replica + 1) * of_replica);
    }
    case Axis::kKvHead: {
      SMP_CHECK(kv_copies >= 1 && degrees_.tensor % kv_copies == 0);
      const int64_t first = self.tensor - self.tensor % kv_copies;
      collect({}, {first, first + kv_copies});
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

}  // namespace smp::mesh
