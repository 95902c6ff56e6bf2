#include "smp/runtime/optim/optimizer.h"

#include <ATen/core/Tensor.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "smp/plan/mesh/collective.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/parameters/flat_parameters.h"

using namespace smp;
using namespace smp::layout;
using namespace smp::ledger;
using namespace smp::mesh;
using namespace smp::model;
using namespace smp::optim;
using namespace smp::parameters;

namespace {

// Two buckets of odd sizes: a matrix and a vector each, padded to a multiple of z.
RankLayout small_layout(int64_t z, int64_t shard, int64_t replica, int64_t replicas = 1) {
  RankLayout layout;
  layout.state = {.shards = z, .replicas = replicas, .shard = shard, .replica = replica};
  int64_t offset = 0;
  for (int64_t layer = 0; layer < 2; ++layer) {
    layout.layers.push_back({LayerKind::kBlock, layer, "layers." + std::to_string(layer)});
    Bucket bucket;
    bucket.begin = offset;
    for (const bool is_vector : {false, true}) {
      PlacedParameter placed;
      placed.spec.name = "layers." + std::to_string(layer) + (is_vector ? ".bias" : ".weight");
      placed.spec.rows = is_vector ? 7 : 5;
      placed.spec.cols = is_vector ? 1 : 9;
      placed.spec.is_vector = is_vector;
      placed.spec.init_std = 0.1;
      placed.spec.weight_decay = !is_vector;
      placed.box = {0, placed.spec.rows, 0, placed.spec.cols};
      placed.layer = layer;
      placed.offset = offset;
      offset += placed.box.size();
      layout.parameters.push_back(placed);
    }
    offset = (offset + z - 1) / z * z;
    bucket.end = offset;
    bucket.first_layer = bucket.last_layer = layer;
    layout.buckets.insert(layout.buckets.begin(), bucket);
  }
  layout.elements = offset;
  layout.optimizer_elements = offset / z;
  return layout;
}

OptimizerSpec optimizer_spec() {
  OptimizerSpec spec;
  spec.learning_rate = 1e-2;
  spec.weight_decay = 0.1;
  return spec;
}

// Of the two layers together, each a bucket.
double norm_squared(Optimizer& optimizer) {
  std::vector<double> by_layer(2);
  for (const int64_t bucket : {0, 1}) optimizer.start_norms(bucket);
  optimizer.add_norms_squared(by_layer);
  return by_layer[0] + by_layer[1];
}

double gradient_of(int64_t step, int64_t element) {
  return std::sin(0.37 * static_cast<double>(element + 1) * static_cast<double>(step + 1));
}

void set_gradients(FlatParameters& parameters, int64_t step) {
  const at::Tensor exact = parameters.gradients().to(at::kDouble);
  double* const gradients = exact.mutable_data_ptr<double>();
  for (const PlacedParameter& parameter : parameters.layout().parameters) {
    for (int64_t i = 0; i < parameter.box.size(); ++i) {
      // By position in the parameter, so that all paddings see the same gradients.
      gradients[parameter.offset + i] = gradient_of(step, parameter.layer * 100 + i);
    }
  }
  parameters.gradients().copy_(exact);
}

// torch.optim.AdamW's single-tensor update, one element at a time (torch/optim/adamw.py).
struct Reference {
  double weight, momentum = 0, variance = 0;

  void update(const OptimizerSpec& spec, double gradient, bool decays, double t) {
    if (decays) weight *= 1 - spec.learning_rate * spec.weight_decay;
    momentum += (gradient - momentum) * (1 - spec.beta1);
    variance = variance * spec.beta2 + (1 - spec.beta2) * gradient * gradient;
    const double correction1 = 1 - std::pow(spec.beta1, t);
    const double correction2 = 1 - std::pow(spec.beta2, t);
    const double denominator = std::sqrt(variance) / std::sqrt(correction2) + spec.epsilon;
    weight += -(spec.learning_rate / correction1) * (momentum / denominator);
  }
};

// torch.optim.SGD's single-tensor update, dampening 0 (torch/optim/sgd.py).
struct SgdReference {
  double weight;
  double buffer = 0;
  bool started = false;

  void update(const OptimizerSpec& spec, double gradient, bool decays) {
    if (decays) gradient += spec.weight_decay * weight;
    if (spec.momentum != 0) {
      buffer = started ? spec.momentum * buffer + gradient : gradient;
      started = true;
      gradient = spec.nesterov ? gradient + spec.momentum * buffer : buffer;
    }
    weight -= spec.learning_rate * gradient;
  }
};

OptimizerSpec sgd_spec(double momentum, bool nesterov) {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kSgd;
  spec.learning_rate = 1e-2;
  spec.weight_decay = 0.1;
  spec.momentum = momentum;
  spec.nesterov = nesterov;
  return spec;
}

}  // namespace

TEST_CASE("twenty steps of SGD follow torch.optim.SGD in fp64, with and without momentum") {
  for (const auto& [momentum, nesterov] : {std::pair{0.0, false}, {0.9, false}, {0.9, true}}) {
    CAPTURE(momentum);
    CAPTURE(nesterov);
    const OptimizerSpec spec = sgd_spec(momentum, nesterov);
    FlatParameters parameters(small_layout(1, 0, 0), DType::kF64);
    parameters.initialise(1);
    Optimizer optimizer(spec, parameters);
    CHECK(optimizer.states().size() == (momentum > 0 ? 1 : 0));
    const double* const weights = parameters.weights().const_data_ptr<double>();
    std::vector<SgdReference> reference;
    for (int64_t i = 0; i < parameters.layout().elements; ++i) reference.push_back({weights[i]});
    const double scale = 0.25;
    for (int64_t step = 0; step < 20; ++step) {
      set_gradients(parameters, step);
      optimizer.step(spec.learning_rate, scale);
      for (const PlacedParameter& parameter : parameters.layout().parameters) {
        for (int64_t i = 0; i < parameter.box.size(); ++i) {
          SgdReference& expected = reference[static_cast<size_t>(parameter.offset + i)];
          expected.update(spec, scale * gradient_of(step, parameter.layer * 100 + i),
                          parameter.spec.weight_decay);
          CHECK(std::abs(weights[parameter.offset + i] - expected.weight) <= 1e-15);
        }
      }
    }
  }
}

TEST_CASE("owned ranges say where each parameter's state lies, on every shard") {
  for (const int64_t z : {1, 2, 3}) {
    int64_t elements = 0;
    for (int64_t shard = 0; shard < z; ++shard) {
      FlatParameters parameters(small_layout(z, shard, 0), DType::kF32);
      parameters.initialise(1);
      Optimizer optimizer(optimizer_spec(), parameters);
      REQUIRE(optimizer.states().size() == 2);
      CHECK(std::string(optimizer.states()[0].name) == "momentum");
      CHECK(std::string(optimizer.states()[1].name) == "variance");
      set_gradients(parameters, 0);
      optimizer.step(1e-3, 1);
      CHECK(optimizer.steps_done() == 1);
      const float* const momentum = optimizer.states()[0].values->const_data_ptr<float>();
      const float* const gradients = parameters.gradients().const_data_ptr<float>();
      for (const Optimizer::OwnedRange& range : optimizer.owned()) {
        const PlacedParameter& parameter =
            parameters.layout().parameters[static_cast<size_t>(range.parameter)];
        CHECK(range.begin >= parameter.offset);
        CHECK(range.end <= parameter.offset + parameter.box.size());
        elements += range.end - range.begin;
        for (int64_t i = range.begin; i < range.end; ++i) {
          CHECK(momentum[range.state + i - range.begin] ==
                static_cast<float>(1.0 - 0.9) * gradients[i]);
        }
      }
    }
    CHECK(elements == 2 * (45 + 7));
  }
}

TEST_CASE("twenty steps of AdamW follow torch.optim.AdamW in fp64") {
  const OptimizerSpec spec = optimizer_spec();
  FlatParameters parameters(small_layout(1, 0, 0), DType::kF64);
  parameters.initialise(1);
  Optimizer optimizer(spec, parameters);
  const double* const weights = parameters.weights().const_data_ptr<double>();
  std::vector<Reference> reference;
  for (int64_t i = 0; i < parameters.layout().elements; ++i) reference.push_back({weights[i]});

  const double scale = 0.25;
  double error = 0;
  double norm = 0;
  for (int64_t step = 0; step < 20; ++step) {
    set_gradients(parameters, step);
    optimizer.step(spec.learning_rate, scale);
    for (const PlacedParameter& parameter : parameters.layout().parameters) {
      for (int64_t i = 0; i < parameter.box.size(); ++i) {
        Reference& expected = reference[static_cast<size_t>(parameter.offset + i)];
        expected.update(spec, scale * gradient_of(step, parameter.layer * 100 + i),
                        parameter.spec.weight_decay, static_cast<double>(step + 1));
        const double difference = weights[parameter.offset + i] - expected.weight;
        error += difference * difference;
        norm += expected.weight * expected.weight;
      }
    }
  }
  CHECK(std::sqrt(error / norm) <= 1e-14);
}

TEST_CASE("fp32 AdamW stays within rounding of fp64 AdamW") {
  const OptimizerSpec spec = optimizer_spec();
  FlatParameters exact(small_layout(1, 0, 0), DType::kF64);
  FlatParameters rounded(small_layout(1, 0, 0), DType::kF32);
  exact.initialise(1);
  rounded.initialise(1);
  Optimizer exact_optimizer(spec, exact);
  Optimizer rounded_optimizer(spec, rounded);
  for (int64_t step = 0; step < 20; ++step) {
    set_gradients(exact, step);
    rounded.gradients().copy_(exact.gradients());
    exact_optimizer.step(spec.learning_rate, 1);
    rounded_optimizer.step(spec.learning_rate, 1);
  }
  for (int64_t i = 0; i < exact.layout().elements; ++i) {
    CHECK(rounded.weights().const_data_ptr<float>()[i] ==
          doctest::Approx(exact.weights().const_data_ptr<double>()[i]).epsilon(1e-5));
  }
}

TEST_CASE("shards update what one rank updates, each its part, to the bit") {
  const OptimizerSpec spec = optimizer_spec();
  FlatParameters whole(small_layout(1, 0, 0), DType::kF64);
  whole.initialise(1);
  Optimizer optimizer(spec, whole);
  for (int64_t step = 0; step < 5; ++step) {
    set_gradients(whole, step);
    optimizer.step(spec.learning_rate, 0.5);
  }
  for (const int64_t z : {2, 3, 4}) {
    for (int64_t shard = 0; shard < z; ++shard) {
      FlatParameters parameters(small_layout(z, shard, 0), DType::kF64);
      parameters.initialise(1);
      const at::Tensor start = parameters.weights().clone();
      Optimizer part(spec, parameters);
      for (int64_t step = 0; step < 5; ++step) {
        set_gradients(parameters, step);
        part.step(spec.learning_rate, 0.5);
      }
      for (const Bucket& bucket : parameters.layout().buckets) {
        const int64_t begin = bucket.begin + shard * bucket.size() / z;
        const int64_t end = begin + bucket.size() / z;
        for (size_t p = 0; p < parameters.layout().parameters.size(); ++p) {
          const PlacedParameter& mine = parameters.layout().parameters[p];
          const PlacedParameter& theirs = whole.layout().parameters[p];
          if (mine.offset < bucket.begin || mine.offset >= bucket.end) continue;
          for (int64_t i = 0; i < mine.box.size(); ++i) {
            const int64_t at = mine.offset + i;
            const bool owned = at >= begin && at < end;
            const double expected =
                owned ? whole.weights().const_data_ptr<double>()[theirs.offset + i]
                      : start.const_data_ptr<double>()[at];
            CHECK(parameters.weights().const_data_ptr<double>()[at] == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("the local norms of all ranks sum to the global norm") {
  FlatParameters whole(small_layout(1, 0, 0), DType::kF64);
  set_gradients(whole, 3);
  double expected = 0;
  for (const PlacedParameter& parameter : whole.layout().parameters) {
    for (int64_t i = 0; i < parameter.box.size(); ++i) {
      expected += std::pow(gradient_of(3, parameter.layer * 100 + i), 2);
    }
  }
  for (const auto& [z, r] : {std::pair{1, 1}, {1, 2}, {2, 1}, {3, 2}, {2, 5}}) {
    double sum = 0;
    for (int64_t shard = 0; shard < z; ++shard) {
      for (int64_t replica = 0; replica < r; ++replica) {
        FlatParameters parameters(small_layout(z, shard, replica, r), DType::kF64);
        parameters.gradients().fill_(1e3);  // padding must not count
        set_gradients(parameters, 3);
        Optimizer optimizer(optimizer_spec(), parameters);
        sum += norm_squared(optimizer);
        CHECK(norm_squared(optimizer) == norm_squared(optimizer));
      }
    }
    CHECK(sum == doctest::Approx(expected).epsilon(1e-14));
  }
}

TEST_CASE(
    "a bucket whose squares are not finite is left alone if that is asked for, and no other") {
  for (const OptimizerSpec& spec : {optimizer_spec(), sgd_spec(0.9, false)})
    for (const bool on_host : {false, true})
      for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
        MemoryLedger host(0, 0);
        FlatParameters parameters(small_layout(1, 0, 0), DType::kF64);
        parameters.initialise(1);
        Optimizer optimizer(spec, parameters, on_host ? &host : nullptr);
        set_gradients(parameters, 0);
        const Bucket& broken = parameters.layout().buckets[1];
        parameters.gradients().mutable_data_ptr<double>()[broken.begin + 3] = bad;
        const at::Tensor before = parameters.weights().clone();
        const auto is_as_before = [&](const Bucket& bucket) {
          const auto part = [&](const at::Tensor& all) {
            return all.narrow(0, bucket.begin, bucket.end - bucket.begin);
          };
          return part(parameters.weights()).equal(part(before));
        };
        optimizer.begin(1e-2, 1);
        for (const int64_t bucket : {0, 1}) {
          optimizer.start_norms(bucket);
          optimizer.update(bucket, /*only_if_finite=*/true);
        }
        CHECK(!is_as_before(parameters.layout().buckets[0]));
        CHECK(is_as_before(broken));
        for (const Optimizer::State& state : optimizer.states())
          CHECK(state.values->isfinite().all().item<bool>());
        optimizer.update(1);
        CHECK(!is_as_before(broken));
      }
}

TEST_CASE("a tensor rank's copy that does not count stays out of the norm") {
  RankLayout layout = small_layout(1, 0, 0);
  for (size_t i = 1; i < layout.parameters.size(); ++i) layout.parameters[i].counts = false;
  FlatParameters parameters(layout, DType::kF32);
  parameters.gradients().fill_(2);
  Optimizer optimizer(optimizer_spec(), parameters);
  CHECK(norm_squared(optimizer) == 45 * 4);
}

TEST_CASE(
    "AdamW allocates two buffers of its part, in the category optimizer, and no temporaries") {
  install_counting_allocator();
  MemoryLedger ledger(0, 0);
  const LedgerScope scope(ledger);
  FlatParameters parameters(small_layout(4, 1, 0), DType::kF32);
  const int64_t elements = parameters.layout().elements;
  const auto bytes = [&](MemoryCategory category) {
    return ledger.live().by_category[static_cast<size_t>(category)];
  };
  CHECK(bytes(MemoryCategory::kWeights) == 4 * elements);
  CHECK(bytes(MemoryCategory::kGradients) == 4 * elements);
  Optimizer optimizer(optimizer_spec(), parameters);
  CHECK(bytes(MemoryCategory::kOptimizer) == 2 * 4 * elements / 4);
  ledger.reset_peak();
  optimizer.step(1e-3, norm_squared(optimizer));
  CHECK(ledger.peak().bytes == ledger.live().bytes);
}
