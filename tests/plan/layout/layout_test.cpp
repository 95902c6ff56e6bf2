#include "smp/plan/layout/layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "plan/plan_samples.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/model_flops.h"
#include "smp/plan/schedule/schedule.h"

using namespace smp;
using namespace smp::layout;
using namespace smp::model;
using namespace smp::schedule;

namespace {

std::vector<std::string> layer_names(const RankLayout& layout) {
  std::vector<std::string> names;
  for (const LayerSpec& layer : layout.layers) names.push_back(layer.name);
  return names;
}

}  // namespace

TEST_CASE("embedding lies on the first stage, head on the last") {
  const Plan plan = sample_plan(small_gpt2(), {.pipeline = 3});
  CHECK(layer_names(rank_layout(plan, 0)) ==
        std::vector<std::string>{"embedding", "layers.0", "layers.1"});
  CHECK(layer_names(rank_layout(plan, 1)) == std::vector<std::string>{"layers.2", "layers.3"});
  CHECK(layer_names(rank_layout(plan, 2)) == std::vector<std::string>{"layers.4", "head"});
}

TEST_CASE("parameters lie one after the other in forward order") {
  const Plan plan = sample_plan(small_llama(), {.pipeline = 2, .tensor = 2});
  for (int64_t rank = 0; rank < 4; ++rank) {
    const RankLayout layout = rank_layout(plan, rank);
    int64_t offset = 0;
    for (const PlacedParameter& p : layout.parameters) {
      CHECK(p.offset == offset);
      offset += p.box.size();
    }
    CHECK(layout.elements == offset);  // shard degree 1: nothing is padded
    CHECK(layout.optimizer_elements == offset);
  }
}

TEST_CASE("what counts over all ranks of one model copy is the model, exactly once") {
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    for (const SampleLayout& sample :
         {SampleLayout{}, SampleLayout{.tensor = 2}, SampleLayout{.tensor = 4},
          SampleLayout{.pipeline = 3, .tensor = 2}, SampleLayout{.pipeline = 5, .tensor = 4}}) {
      const Plan plan = sample_plan(model, sample);
      std::map<std::string, int64_t> counted;
      int64_t total = 0;
      for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
        for (const PlacedParameter& p : rank_layout(plan, rank).parameters) {
          if (p.counts) counted[p.spec.name] += p.box.size();
          if (p.counts) total += p.box.size();
        }
      }
      CHECK(total == parameter_count(model));
      for (const LayerSpec& layer : layers_of(model)) {
        for (const ParameterSpec& spec : parameters_of(model, layer)) {
          CHECK(counted[spec.name] == spec.size());
        }
      }
    }
  }
}

TEST_CASE("max_live_parameters bounds what is gathered ahead, never the running layer") {
  Plan plan = sample_plan(small_gpt2(), {.shard = 2});
  plan.job.parallel.sharding = Sharding::kParameters;
  plan.job.parallel.prefetch_layers = 3;
  const auto gathered = [&](int64_t most) {
    plan.job.parallel.max_live_parameters = most;
    return rank_layout(plan, 0).weight_buffers;
  };
  const std::vector<int64_t> all = gathered(0);
  const int64_t sum = std::accumulate(all.begin(), all.end(), int64_t{0});
  REQUIRE(all.size() >= 4);
  CHECK(gathered(sum) == all);
  CHECK(gathered(sum - 1).size() == all.size() - 1);
  const size_t least = gathered(1).size();
  CHECK(least < all.size());
  CHECK(gathered(sum / 1000) == gathered(1));
  const ScheduleParameters parameters = schedule_parameters(plan);
  CHECK(verify(make_schedule(parameters), parameters).value_or("all is well") == "all is well");
}

TEST_CASE("copies of a KV head count on the first tensor rank that holds it") {
  const Plan plan = sample_plan(small_llama(), {.tensor = 4});
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const PlacedParameter& p : rank_layout(plan, rank).parameters) {
      CAPTURE(p.spec.name);
      if (p.spec.split == TensorSplit::kKvHeads) {
        CHECK(p.copies == 2);
        CHECK(p.counts == (rank % 2 == 0));
      } else if (p.spec.split == TensorSplit::kReplicated) {
        CHECK(p.copies == 4);
        CHECK(p.counts == (rank == 0));
      } else {
        CHECK(p.copies == 1);
        CHECK(p.counts);
      }
    }
  }
}

TEST_CASE("buckets tile the flat buffer from its end, each padded to the shard degree") {
  for (const int64_t shard : {1, 2, 3, 7}) {
    const Plan plan = sample_plan(
        small_gpt2(), {.pipeline = 2, .tensor = 2, .shard = shard, .bucket_bytes = 50'000});
    for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
      const RankLayout layout = rank_layout(plan, rank);
      int64_t end = layout.elements;
      int64_t last_layer = layout.layers.back().index;
      for (const Bucket& bucket : layout.buckets) {
        CHECK(bucket.end == end);
        CHECK(bucket.last_layer == last_layer);
        CHECK(bucket.size() % shard == 0);
        end = bucket.begin;
        last_layer = bucket.first_layer - 1;
        for (const PlacedParameter& p : layout.parameters) {
          const bool inside = p.layer >= bucket.first_layer && p.layer <= bucket.last_layer;
          CHECK(inside == (p.offset >= bucket.begin && p.offset < bucket.end));
          if (inside) CHECK(p.offset + p.box.size() <= bucket.end);
        }
      }
      CHECK(end == 0);
      CHECK(last_layer == layout.layers.front().index - 1);
      CHECK(layout.optimizer_elements * shard == layout.elements);
    }
  }
}

TEST_CASE("a bucket is closed at bucket_bytes and holds whole layers") {
  // A block of this model has 28,272 elements = 113,088 bytes in fp32.
  const auto bounds = [](int64_t bucket_bytes, Precision precision) {
    const Plan plan =
        sample_plan(small_gpt2(), {.bucket_bytes = bucket_bytes, .precision = precision});
    std::vector<std::pair<int64_t, int64_t>> layers;
    for (const Bucket& b : rank_layout(plan, 0).buckets) {
      layers.emplace_back(b.first_layer, b.last_layer);
    }
    return layers;
  };
  using Bounds = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(bounds(1, Precision::kFp32) ==
        Bounds{{6, 6}, {5, 5}, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {0, 0}});
  CHECK(bounds(150'000, Precision::kFp32) == Bounds{{4, 6}, {2, 3}, {0, 1}});
  CHECK(bounds(300'000, Precision::kFp64) == Bounds{{4, 6}, {2, 3}, {0, 1}});
  CHECK(bounds(150'000, Precision::kBf16) == Bounds{{4, 6}, {2, 3}, {0, 1}});  // summed in fp32
  CHECK(bounds(25 << 20, Precision::kFp32) == Bounds{{0, 6}});
}

TEST_CASE("sharded: small neighbours are packed until they hold enough, the ends stay alone") {
  // A block of this model has 113,088 bytes; 5 of them, embedding and head.
  using Bounds = std::vector<std::pair<int64_t, int64_t>>;
  const auto bounds = [](int64_t bytes, PipelineKind kind) {
    Plan plan = sample_plan(small_gpt2(), {.shard = 2, .pipeline_kind = kind});
    plan.job.parallel.sharding = Sharding::kGradients;
    plan.job.parallel.shard_bucket_bytes = bytes;
    const RankLayout layout = rank_layout(plan, 0);
    Bounds layers;
    for (const Bucket& b : layout.buckets) layers.emplace_back(b.first_layer, b.last_layer);
    return layers;
  };
  const Bounds one_each{{6, 6}, {5, 5}, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {0, 0}};
  CHECK(bounds(1, PipelineKind::kInterleaved) == one_each);
  CHECK(bounds(113'088, PipelineKind::kInterleaved) == one_each);
  CHECK(bounds(113'089, PipelineKind::kInterleaved) ==
        Bounds{{6, 6}, {4, 5}, {2, 3}, {1, 1}, {0, 0}});
  CHECK(bounds(1 << 20, PipelineKind::kInterleaved) == Bounds{{6, 6}, {1, 5}, {0, 0}});
  CHECK(bounds(1 << 20, PipelineKind::kZbH1) == one_each);  // they are not complete together
}

TEST_CASE("layers packed into a bucket are not more than max_live_parameters, a layer may be") {
  using Bounds = std::vector<std::pair<int64_t, int64_t>>;
  Plan plan = sample_plan(small_gpt2(), {.shard = 2});  // blocks of 28,272 elements
  plan.job.parallel.sharding = Sharding::kParameters;
  plan.job.parallel.shard_bucket_bytes = 1 << 20;
  const auto bounds = [&](int64_t most) {
    plan.job.parallel.max_live_parameters = most;
    const RankLayout layout = rank_layout(plan, 0);
    Bounds layers;
    for (const Bucket& b : layout.buckets) layers.emplace_back(b.first_layer, b.last_layer);
    return layers;
  };
  CHECK(bounds(0) == Bounds{{6, 6}, {1, 5}, {0, 0}});
  CHECK(bounds(2 * 28'272) == Bounds{{6, 6}, {4, 5}, {2, 3}, {1, 1}, {0, 0}});
  CHECK(bounds(2 * 28'272 - 1) == Bounds{{6, 6}, {5, 5}, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {0, 0}});
  CHECK(bounds(1) == bounds(28'272));
  plan.job.parallel.sharding = Sharding::kGradients;  // nothing is gathered
  CHECK(bounds(1) == bounds(0));
}

TEST_CASE("layers all of whose tensors persist are in no bucket of other layers") {
  ModelSpec model = small_gpt2();
  model.tied_embeddings = false;
  Plan plan = sample_plan(model, {.shard = 2});
  plan.job.parallel.sharding = Sharding::kParameters;
  plan.job.parallel.prefetch_layers = 3;
  plan.job.parallel.param_persistence_threshold = 4 * 48 * 48 + 1;  // all of a block's
  const RankLayout layout = rank_layout(plan, 0);
  REQUIRE(layout.buckets.size() == 3);
  CHECK(layout.buckets[0].first_layer == 6);  // the head
  CHECK(layout.buckets[0].last_layer == 6);
  CHECK(layout.buckets[1].first_layer == 0);  // the embedding
  CHECK(layout.buckets[1].last_layer == 0);
  CHECK(layout.weight_buffers.size() == 2);  // theirs, and that of what persists
  CHECK(layout.gradient_buffers.size() == 2);
  const ScheduleParameters parameters = schedule_parameters(plan);
  const Schedule schedule = make_schedule(parameters);
  CHECK(verify(schedule, parameters).value_or("all is well") == "all is well");
  // The embedding is gathered for its own forward alone.
  const auto& actions = schedule.actions.front();
  CHECK(std::count_if(actions.begin(), actions.end(), [](const Action& action) {
          return action.kind == ActionKind::kGather && action.bucket == 1;
        }) == *plan.job.training.microbatches);
}

TEST_CASE("tensors below param_persistence_threshold lie in front, in a bucket of their own") {
  Plan plan = sample_plan(small_gpt2(), {.shard = 2});
  plan.job.parallel.sharding = Sharding::kParameters;
  const auto layout_of = [&](int64_t threshold) {
    plan.job.parallel.param_persistence_threshold = threshold;
    return rank_layout(plan, 0);
  };
  CHECK(layout_of(0).persistent_bucket == -1);
  const RankLayout all = layout_of(1 << 30);
  REQUIRE(all.buckets.size() == 1);
  CHECK(all.persistent_bucket == 0);
  CHECK(all.weight_buffers == std::vector<int64_t>{all.elements});

  const RankLayout some = layout_of(49);  // vectors of 48: norms, and two of a block's biases
  const Bucket& small = some.buckets.back();
  CHECK(some.persistent_bucket == 6);  // of the tied head there is its norm alone
  CHECK(small.begin == 0);
  CHECK(small.first_layer == 0);
  CHECK(small.last_layer == 6);
  int64_t elements = 0;
  for (const PlacedParameter& p : some.parameters) {
    CAPTURE(p.spec.name);
    CHECK((p.offset < small.end) == (p.spec.size() < 49));
    if (p.spec.size() < 49) elements += p.box.size();
  }
  CHECK(small.size() == elements);
  CHECK(some.weight_buffers.back() == elements);
  CHECK(some.gradient_buffers.back() == elements);
  CHECK(some.elements == layout_of(0).elements);

  plan = sample_plan(small_llama(), {.tensor = 4, .shard = 2});  // each KV head on two ranks
  plan.job.parallel.sharding = Sharding::kParameters;
  const RankLayout copied = layout_of(1 << 30);
  for (const PlacedParameter& p : copied.parameters) {
    const bool with_keys =
        p.spec.split == TensorSplit::kKvHeads || p.spec.name.ends_with(".q.weight");
    CHECK((p.offset < copied.buckets.back().end) == !with_keys);
  }
}

TEST_CASE("all tensor ranks of a stage cut their buckets at the same layers") {
  // Between the sizes of rank 0 (65 vocabulary rows) and of the others (64).
  const Plan plan =
      sample_plan(small_gpt2(), {.tensor = 4, .bucket_bytes = (65 * 48 + 16 * 48) * 4});
  std::set<std::vector<int64_t>> cuts;
  for (int64_t rank = 0; rank < 4; ++rank) {
    std::vector<int64_t> layers;
    for (const Bucket& b : rank_layout(plan, rank).buckets) layers.push_back(b.first_layer);
    cuts.insert(layers);
  }
  CHECK(cuts.size() == 1);
}

TEST_CASE("a tied model's last stage holds a copy of the embedding that never counts") {
  const Plan plan = sample_plan(small_gpt2(), {.pipeline = 2, .tensor = 2});
  CHECK_FALSE(rank_layout(plan, 0).tied_copy.has_value());
  const RankLayout last = rank_layout(plan, 3);
  REQUIRE(last.tied_copy.has_value());
  CHECK(last.tied_copy->spec.name == "embedding.tokens.weight");
  CHECK(last.tied_copy->box == Box{129, 257, 0, 48});
  CHECK(last.tied_copy->offset == 0);
  CHECK_FALSE(last.tied_copy->counts);
  for (const PlacedParameter& p : last.parameters) CHECK(p.spec.name != "embedding.tokens.weight");
  CHECK_FALSE(rank_layout(sample_plan(small_gpt2(), {.tensor = 2}), 1).tied_copy.has_value());
  CHECK_FALSE(rank_layout(sample_plan(small_llama(), {.pipeline = 2}), 1).tied_copy.has_value());
}

TEST_CASE(
    "a pipeline cuts encoder and decoder as one sequence: further tokens stay with the head") {
  ModelSpec both = small_gpt2();
  set_family(both, ModelFamily::kTransformer);
  both.stack = Stack::kEncoderDecoder;
  both.decoder_layers = 3;
  const Plan plan = sample_plan(both, {.pipeline = 2});
  const RankLayout first = rank_layout(plan, 0), last = rank_layout(plan, 1);
  REQUIRE(first.layers.size() == 5);
  REQUIRE(last.layers.size() == 5);
  CHECK(first.layers.back().name == "layers.3");
  CHECK(last.layers.front().name == "layers.4");
  CHECK(last.layers[1].name == "decoder_layers.0");

  ModelSpec further = small_llama();
  further.num_mtp_layers = 1;
  const Plan two = sample_plan(further, {.pipeline = 2});
  CHECK(rank_layout(two, 0).layers.size() == 4);
  REQUIRE(rank_layout(two, 1).layers.size() == 4);
  CHECK(rank_layout(two, 1).layers[2].name == "mtp_layers.0");
}

TEST_CASE("gathers of updated weights are limited where they take host memory") {
  Plan plan = sample_plan(small_gpt2(), {.shard = 2});
  const auto most = [&] { return schedule_parameters(plan).most_gathers; };
  CHECK(most() == 0);
  plan.job.cluster.device = DeviceKind::kCuda;
  plan.job.parallel.data_collectives = CollectivesKind::kHost;
  CHECK(most() == 2);
  plan.job.parallel.collectives.shard = CollectivesKind::kNccl;
  CHECK(most() == 0);
  plan.job.parallel.collectives.shard = CollectivesKind::kHost;
  plan.job.parallel.sharding = Sharding::kParameters;  // gathered into buffers instead
  CHECK(most() == 0);
}

TEST_CASE("second halves are placed by the cluster's rates") {
  Plan plan = sample_plan(small_gpt2(), {.shard = 2, .replica = 2});
  ClusterSpec& cluster = plan.job.cluster;
  const auto pace = [&] { return schedule_parameters(plan).reduced_per_computed; };
  CHECK(pace() == 2);  // no rates
  // The backward takes 2/3 of the model's flops, at half of 1 Gflop/s. A rank sends half of its
  // gradients; half of the rate is expected.
  cluster.fp32_flops_per_s = 1e9;
  cluster.matmul_efficiency = 0.5;
  cluster.intra_host_bytes_per_s = 1e9;
  int64_t elements = 0;
  for (const Bucket& bucket : rank_layout(plan, 0).buckets) elements += bucket.size();
  const double flops = model_flops(plan.job, static_cast<double>(*plan.job.training.micro_batch));
  const double computing_s = flops * 2 / 3 / 0.5e9;
  const double reducing_s = static_cast<double>(4 * elements / 2) / 1e9;
  const int64_t expected = static_cast<int64_t>(0.5 * computing_s / reducing_s);
  REQUIRE(expected > 2);
  CHECK(pace() == expected);
  cluster.intra_host_bytes_per_s = 1e3;
  CHECK(pace() == 1);
  cluster.intra_host_bytes_per_s = 1e15;
  CHECK(pace() == 1024);
  // Shard groups that reach over hosts use the network.
  cluster.hosts = 4;
  cluster.processes_per_host = 1;
  CHECK(pace() == 2);
  cluster.inter_host_bytes_per_s = 1e3;
  CHECK(pace() == 1);
  plan.degrees.replica = 1;
  CHECK(schedule_parameters(plan).has_replicas == false);
}
