#include "smp/runtime/parameters/flat_parameters.h"

#include <ATen/core/Tensor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "parameters/owned_part.h"
#include "runtime/state_plans.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/layers/layer.h"
#include "smp/runtime/ledger/memory_ledger.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::layout;
using namespace smp::ledger;
using namespace smp::mesh;
using namespace smp::parameters;

namespace {

// Every parameter's elements, from all ranks' boxes; copies must agree to the bit.
std::map<std::string, std::vector<double>> weights_of_all_ranks(const Plan& plan) {
  std::map<std::string, std::vector<double>> all;
  for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
    FlatParameters parameters(rank_layout(plan, rank), DType::kF64);
    parameters.initialise(99);
    const RankLayout& layout = parameters.layout();
    for (size_t p = 0; p < layout.parameters.size(); ++p) {
      const PlacedParameter& placed = layout.parameters[p];
      std::vector<double>& whole = all[placed.spec.name];
      whole.resize(static_cast<size_t>(placed.spec.size()), -1000);
      const at::Tensor& weight = parameters.weight(static_cast<int64_t>(p));
      const double* data = weight.const_data_ptr<double>();
      for (int64_t row = placed.box.row_begin; row < placed.box.row_end; ++row) {
        for (int64_t col = placed.box.col_begin; col < placed.box.col_end; ++col) {
          double& element = whole[static_cast<size_t>(row * placed.spec.cols + col)];
          CHECK((element == -1000 || element == *data));
          element = *data++;
        }
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("every layout starts with the weights of one rank") {
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    const auto expected = weights_of_all_ranks(small_plan(family, {}));
    for (const Degrees degrees : {Degrees{.pipeline = 2}, Degrees{.tensor = 2},
                                  Degrees{.tensor = 4}, Degrees{.pipeline = 2, .tensor = 2},
                                  Degrees{.shard = 2}, Degrees{.pipeline = 3, .replica = 2}}) {
      CHECK(weights_of_all_ranks(small_plan(family, degrees)) == expected);
    }
  }
}

TEST_CASE("views lie in the flat buffers as the layout says") {
  FlatParameters parameters(rank_layout(small_plan(ModelFamily::kGpt2, {}), 0), DType::kF32);
  const RankLayout& layout = parameters.layout();
  CHECK(parameters.weights().numel() == layout.elements);
  const FlatParameters::Range block = parameters.range_of(1);
  CHECK(layout.parameters[static_cast<size_t>(block.first)].spec.name ==
        "layers.0.attention_norm.weight");
  for (size_t p = 0; p < layout.parameters.size(); ++p) {
    const PlacedParameter& placed = layout.parameters[p];
    const at::Tensor& gradient = parameters.gradient(static_cast<int64_t>(p));
    CHECK(gradient.const_data_ptr<float>() ==
          parameters.gradients().const_data_ptr<float>() + placed.offset);
    CHECK(gradient.dim() == (placed.spec.is_vector ? 1 : 2));
    CHECK(gradient.size(0) == placed.box.rows());
  }
}

TEST_CASE("q, k and v are neighbours in memory, and so are their biases") {
  FlatParameters parameters(rank_layout(small_plan(ModelFamily::kGpt2, {.tensor = 2}), 1),
                            DType::kF32);
  const int64_t first = parameters.range_of(2).first;
  for (const int64_t q : {first + 2, first + 5}) {
    for (const int64_t i : {q, q + 1}) {
      const at::Tensor& weight = parameters.weight(i);
      CHECK(weight.const_data_ptr<float>() + weight.numel() ==
            parameters.weight(i + 1).const_data_ptr<float>());
    }
  }
}

TEST_CASE("a tied head uses the token embedding: the same views, or the copy of the last stage") {
  FlatParameters alone(rank_layout(small_plan(ModelFamily::kGpt2, {}), 0), DType::kF64);
  const int64_t head = alone.layout().layers.back().index;
  CHECK(alone.layer_parameters(head).weights.back().const_data_ptr() ==
        alone.weight(0).const_data_ptr());
  CHECK(!alone.tied_weight().defined());

  const Plan two_stages = small_plan(ModelFamily::kGpt2, {.pipeline = 2});
  FlatParameters first(rank_layout(two_stages, 0), DType::kF64);
  FlatParameters last(rank_layout(two_stages, 1), DType::kF64);
  first.initialise(5);
  last.initialise(5);
  CHECK(last.layer_parameters(head).gradients.back().const_data_ptr() ==
        last.tied_gradient().const_data_ptr());
  CHECK(last.tied_weight().equal(first.weight(0)));
  last.tied_gradient().fill_(1);
  last.zero_gradients();
  CHECK(last.tied_gradient().sum().item<double>() == 0);
}

TEST_CASE("an untied head brings its own weight") {
  FlatParameters parameters(rank_layout(small_plan(ModelFamily::kLlama, {}), 0), DType::kF32);
  const int64_t head = parameters.layout().layers.back().index;
  CHECK(parameters.layer_parameters(head).weights.size() == 2);
}

TEST_CASE(
    "buffers that peers read cost the ledger the bytes of any others, until they are dropped") {
  run_ranks(2, [](Communicator& world) {
    const Plan plan = small_plan(ModelFamily::kGpt2, {.shard = 2});
    MemoryLedger ledger(world.rank(), 0);
    const LedgerScope scope(ledger);
    FlatParameters parameters(rank_layout(plan, world.rank()), DType::kF32, &world);
    const int64_t elements = parameters.layout().elements;
    CHECK(ledger.live().bytes == 2 * 4 * elements);
    parameters.initialise(3);
    parameters.gradients().fill_(world.rank() + 1);
    void* gradients = parameters.gradients().mutable_data_ptr();
    world.all_reduce(gradients, gradients, elements, DType::kF32, ReduceOp::kSum, "g")->wait();
    CHECK(parameters.gradients().min().item<float>() == 3);
    CHECK(parameters.gradients().max().item<float>() == 3);
    parameters.drop_gradients();
    CHECK(ledger.live().bytes == 4 * elements);

    MemoryLedger small(world.rank(), 1000);
    const LedgerScope other(small);
    CHECK_THROWS_AS(FlatParameters(rank_layout(plan, world.rank()), DType::kF32, &world),
                    OutOfMemory);
  });
}

TEST_CASE("of what is sharded a rank has its part, and buffers that neighbours take in turn") {
  Plan plan = small_plan(ModelFamily::kGpt2, {.shard = 4});
  plan.job.model.tied_embeddings = false;
  FlatParameters whole(rank_layout(small_plan(ModelFamily::kGpt2, {}), 0), DType::kF64);
  whole.initialise(11);
  for (const Sharding sharding : {Sharding::kGradients, Sharding::kParameters}) {
    plan.job.parallel.sharding = sharding;
    MemoryLedger ledger(0, 0);
    const LedgerScope scope(ledger);
    FlatParameters parameters(rank_layout(plan, 2), DType::kF64);
    parameters.initialise(11);
    const RankLayout& layout = parameters.layout();
    CHECK(layout.buckets.size() == layout.layers.size());
    CHECK(parameters.gradients().numel() == layout.elements / 4);
    const bool sharded = sharding == Sharding::kParameters;
    CHECK(parameters.weights().numel() == layout.elements / (sharded ? 4 : 1));
    CHECK(layout.gradient_buffers.size() == 3);
    CHECK(layout.weight_buffers.size() == (sharded ? 3 : 0));
    // Neighbours differ, the layer after the next one has the same.
    const auto gradient_of = [&](int64_t layer) {
      return parameters.gradient(parameters.range_of(layer).first).const_data_ptr();
    };
    CHECK_FALSE(gradient_of(1) == gradient_of(2));
    CHECK(gradient_of(1) == gradient_of(3));
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
      const OwnedPart owned = parameters.owned(static_cast<int64_t>(b));
      CHECK(owned.end - owned.begin == layout.buckets[b].size() / 4);
      CHECK(owned.begin == layout.buckets[b].begin + 2 * (owned.end - owned.begin));
      CHECK(owned.gradients.numel() == owned.end - owned.begin);
      for (const PlacedParameter& placed : layout.parameters) {
        const auto same_name = [&](const PlacedParameter& other) {
          return other.spec.name == placed.spec.name;
        };
        const auto& others = whole.layout().parameters;
        const auto other = std::find_if(others.begin(), others.end(), same_name);
        if (other == others.end()) continue;  // the untied head
        const int64_t first = std::max(owned.begin, placed.offset);
        const int64_t last = std::min(owned.end, placed.offset + placed.box.size());
        for (int64_t at = first; at < last; ++at) {
          REQUIRE(owned.weights.const_data_ptr<double>()[at - owned.begin] ==
                  whole.weights().const_data_ptr<double>()[other->offset + at - placed.offset]);
        }
      }
    }
  }
}

TEST_CASE("16-bit weights are rounded from fp32 ones, and their gradients are fp32") {
  FlatParameters exact(rank_layout(small_plan(ModelFamily::kLlama, {}), 0), DType::kF32);
  FlatParameters rounded(rank_layout(small_plan(ModelFamily::kLlama, {}), 0), DType::kBF16);
  exact.initialise(3);
  rounded.initialise(3);
  CHECK(rounded.gradient_dtype() == DType::kF32);
  CHECK((rounded.gradients().scalar_type() == at::kFloat));
  CHECK(rounded.weights().equal(exact.weights().to(at::kBFloat16)));
}
