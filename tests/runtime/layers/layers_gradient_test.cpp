#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <cmath>

#include "ledger/tensor_factories.h"
#include "runtime/central_differences.h"
#include "runtime/layers_support.h"
#include "smp/plan/program/fusions.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::kernels;
using namespace smp::layers;
using namespace smp::ledger;
using namespace smp::test;

namespace {

void check_gradients(const ModelSpec& model, int64_t batch_size, int64_t sequence,
                     const CallContext& call = {}) {
  at::set_num_threads(1);
  ModelOnRank rank(model, arbitrary_weights(model, at::kDouble), nullptr);
  rank.set_context(call);
  const GradientError largest =
      largest_gradient_error(rank, arbitrary_batch(model, batch_size, sequence));
  INFO(largest.element);
  CHECK(largest.difference < tolerance::kCentralDifferenceOfLoss);
}

void append(std::vector<ModelSpec>& models, const std::vector<ModelSpec>& more) {
  models.insert(models.end(), more.begin(), more.end());
}

}  // namespace

TEST_CASE("layers: GPT-2 gradients are those of central differences") {
  check_gradients(small_gpt2(), 2, 7);
  ModelSpec untied = small_gpt2();
  untied.tied_embeddings = false;
  check_gradients(untied, 1, 5);
}

TEST_CASE("layers: Llama gradients are those of central differences") {
  check_gradients(small_llama(), 2, 7);
  ModelSpec tied = small_llama();
  tied.tied_embeddings = true;
  tied.num_kv_heads = 1;
  check_gradients(tied, 1, 5);
}

TEST_CASE("layers: gradients of blocks of neither family are those of central differences") {
  std::vector<ModelSpec> models = small_others();
  append(models, small_attentions());
  for (const ModelSpec& model : models) {
    INFO(model.name);
    check_gradients(model, 2, 7);
  }
}

TEST_CASE("layers: gradients of experts and their routers are those of central differences") {
  for (const ModelSpec& model : small_mixtures()) {
    INFO(model.name);
    check_gradients(model, 2, 7);
  }
}

TEST_CASE("layers: gradients with further tokens are those of central differences") {
  std::vector<ModelSpec> models{small_llama(), small_gpt2(), small_mixtures().back()};
  for (const bool tied : {false, true}) {
    for (ModelSpec& model : models) {
      model.tied_embeddings = tied;
      model.num_mtp_layers = tied ? 1 : 2;
      model.mtp_loss_factor = 0.7;
      INFO(model.name);
      check_gradients(model, 2, 7);
    }
  }
}

TEST_CASE("layers: gradients with losses of routers and full experts are central differences'") {
  at::set_num_threads(1);
  for (ModelSpec& model : small_mixtures()) {
    model.router_balance_loss = 0.7;
    model.router_z_loss = 0.3;
    const bool sigmoid = model.router == RouterKind::kSigmoid;
    model.router_balance_over = sigmoid ? BalanceOver::kSequence : BalanceOver::kMicrobatch;
    model.expert_capacity_factor = 1.2;
    INFO(model.name);
    constexpr int64_t kTokens = 14;
    ModelOnRank rank(model, arbitrary_weights(model, at::kDouble), nullptr);
    rank.set_context({.trains = true, .loss_gradient = 1.0 / kTokens});
    const auto batch = arbitrary_batch(model, 2, kTokens / 2);
    int64_t dropped = 0;
    double of_routers = 0;
    const GradientError largest = largest_gradient_error(rank, batch, [&] {
      for (const auto& layer : rank.layers()) layer->take_router_load();
      double loss = rank.run(batch, true);
      for (const auto& layer : rank.layers()) {
        const RouterLoad load = layer->take_router_load();
        dropped += load.dropped;
        of_routers += load.balance_loss + load.z_loss;
        loss += (load.balance_loss + load.z_loss) / kTokens;
      }
      return loss;
    });
    INFO(largest.element);
    CHECK(largest.difference < tolerance::kCentralDifferenceOfLoss);
    CHECK(dropped > 0);
    CHECK(of_routers > 0);
  }
}

// DeepSeek-V3's bias helps to choose and does not weigh; its gradient is the excess of the load.
TEST_CASE("layers: a router's bias moves tokens to other experts") {
  at::set_num_threads(1);
  ModelSpec model = small_mixtures().front();
  model.router_correction_bias = true;
  NamedTensors weights = arbitrary_weights(model, at::kDouble);
  const std::string name = "layers.0.mlp.router.correction_bias";
  weights.at(name).zero_();
  weights.at(name)[2] = 10.0;  // all tokens choose it
  weights.at(name)[3] = -10.0;
  ModelOnRank rank(model, weights, nullptr);
  rank.run(arbitrary_batch(model, 2, 7), true);
  const RouterLoad load = rank.layers()[1]->take_router_load();
  REQUIRE(load.tokens.size() == 4);
  CHECK(load.tokens[2] == 14);
  CHECK(load.tokens[3] == 0);
  CHECK(load.tokens[0] + load.tokens[1] == 14);
  for (size_t e = 0; e < 4; ++e) {
    // Experts times its tokens, minus all choices.
    CHECK(rank.gradients().at(name).data_ptr<double>()[e] ==
          static_cast<double>(4 * load.tokens[e] - 28));
  }
  CHECK(rank.layers()[1]->take_router_load().tokens.empty());
}

TEST_CASE("layers: gradients with dropout are those of central differences of the same masks") {
  const CallContext call{.seed = 7, .step = 3, .first_sample = 4, .trains = true};
  std::vector<ModelSpec> models = small_others();
  append(models, small_attentions());
  models.insert(models.end(), {small_mixtures().front(), small_t5(), small_gpt2(), small_llama()});
  for (ModelSpec& model : models) {
    model.hidden_dropout = 0.2;
    model.attention_dropout = 0.3;
    INFO(model.name);
    check_gradients(model, 2, 7, call);
  }
  models.back().num_layers = 1;
  check_gradients(models.back(), 1, 70, call);  // longer than a block of queries
}

TEST_CASE("layers: T5 gradients are those of central differences") {
  for (const ModelSpec& model : {small_t5(), small_t5_gated()}) {
    INFO(model.name);
    check_gradients(model, 2, 7);
    check_gradients(model, 1, 70);  // longer than a block of queries
  }
}

TEST_CASE("layers: sequences longer than a block of queries") {
  // 64 queries share a block: 70 positions need two, the second one short.
  ModelSpec model = small_llama();
  model.num_layers = 1;
  check_gradients(model, 1, 70);
  model.qk_norm = true;
  check_gradients(model, 1, 70);
}

TEST_CASE("layers: gradients with windows are those of central differences") {
  const CallContext call{.seed = 7, .step = 3, .first_sample = 4, .trains = true};
  ModelSpec model = small_llama();
  model.sliding_window = 3;
  check_gradients(model, 2, 7);
  model.num_layers = 1;
  model.sliding_window = 20;
  check_gradients(model, 1, 70);  // longer than a block of queries
  model.qk_norm = true;
  model.attention_dropout = 0.3;
  check_gradients(model, 1, 70, call);
}

TEST_CASE("layers: gradients of sinks are those of central differences, in long sequences too") {
  const CallContext call{.seed = 7, .step = 3, .first_sample = 4, .trains = true};
  ModelSpec model = small_attentions().back();
  model.sliding_window = 20;
  check_gradients(model, 1, 70);
  model.attention_dropout = 0.3;
  check_gradients(model, 1, 70, call);
}

TEST_CASE("layers: a block's input gradient is that of central differences") {
  at::set_num_threads(1);
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    ModelOnRank rank(model, arbitrary_weights(model, at::kDouble), nullptr);
    const auto batch = arbitrary_batch(model, 2, 6);
    const at::Tensor embedded = rank.layers()[0]->forward({batch[0]}, {}, nullptr)[0];
    const at::Tensor x = embedded.clone();
    Saved saved;
    const at::Tensor y = rank.layers()[1]->forward({x}, {}, &saved)[0];
    // The loss is the sum of y's elements times fixed weights.
    at::Tensor weights = empty_tensor_like(y.detach());
    for (int64_t i = 0; i < weights.numel(); ++i) {
      weights.data_ptr<double>()[i] = std::sin(static_cast<double>(i));
    }
    const at::Tensor dx = rank.layers()[1]->backward(std::move(saved), {weights}, {}, nullptr)[0];
    const auto loss_at = [&](int64_t i, double step) {
      at::Tensor moved = embedded.clone();
      moved.data_ptr<double>()[i] += step;
      return rank.layers()[1]
          ->forward({moved}, {}, nullptr)[0]
          .mul(weights)
          .sum()
          .item()
          .toDouble();
    };
    for (int64_t i = 0; i < x.numel(); i += 5) {
      const double expected = (loss_at(i, 1e-5) - loss_at(i, -1e-5)) / 2e-5;
      CHECK(std::abs(dx.data_ptr<double>()[i] - expected) < tolerance::kCentralDifference);
    }
  }
}

TEST_CASE("layers: gradients of microbatches add up, scaled by the loss's gradient") {
  at::set_num_threads(1);
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    const auto weights = arbitrary_weights(model, at::kDouble);
    const auto batch = arbitrary_batch(model, 4, 6);
    ModelOnRank whole(model, weights, nullptr), halves(model, weights, nullptr);
    const double loss = whole.run(batch, true);
    double mean = 0;
    for (int64_t half = 0; half < 2; ++half) {
      mean += 0.5 * halves.run({batch[0].narrow(0, 2 * half, 2).contiguous(),
                                batch[1].narrow(0, 2 * half, 2).contiguous()},
                               true, 0.5);
    }
    CHECK(std::abs(mean - loss) < tolerance::kMicrobatchLoss * loss);
    for (const auto& [name, gradient] : whole.gradients()) {
      INFO(name);
      // The keys' bias has no gradient but rounding.
      if (name.ends_with("k.bias")) continue;
      CHECK(relative_difference(halves.gradients().at(name), gradient) <
            tolerance::kMicrobatchGradient);
    }
  }
}

TEST_CASE("layers: fp32 agrees with fp64 and repeats to the bit") {
  at::set_num_threads(1);
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    const auto batch = arbitrary_batch(model, 3, 66);
    ModelOnRank exact(model, arbitrary_weights(model, at::kDouble), nullptr);
    ModelOnRank first(model, arbitrary_weights(model, at::kFloat), nullptr);
    ModelOnRank second(model, arbitrary_weights(model, at::kFloat), nullptr);
    const double loss = exact.run(batch, true);
    CHECK(std::abs(first.run(batch, true) - loss) < tolerance::kF32Loss * loss);
    second.run(batch, true);
    for (const auto& [name, gradient] : exact.gradients()) {
      INFO(name);
      CHECK(first.gradients().at(name).equal(second.gradients().at(name)));
      if (name.ends_with("k.bias")) continue;
      CHECK(relative_difference(first.gradients().at(name), gradient) < tolerance::kF32Gradient);
    }
  }
}

TEST_CASE("layers: deferred weight gradients equal those of at once, to the bit") {
  at::set_num_threads(1);
  std::vector<ModelSpec> models = small_others();
  append(models, small_attentions());
  models.insert(models.end(), {small_mixtures().front(), small_mixtures().back(), small_t5(),
                               small_gpt2(), small_llama()});
  for (const ModelSpec& model : models) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const auto weights = arbitrary_weights(model, type);
      ModelOnRank at_once(model, weights, nullptr), deferred(model, weights, nullptr);
      // Two microbatches, whose weights' gradients both wait until the end.
      std::vector<DeferredWeightGradients> work(2);
      for (size_t i = 0; i < work.size(); ++i) {
        const auto batch = arbitrary_batch(model, 2, 5 + static_cast<int64_t>(i));
        CHECK(at_once.run(batch, true) == deferred.run(batch, true, 1, &work[i]));
      }
      CHECK_FALSE(deferred.gradients().at("layers.0.attention.q.weight").any().item().toBool());
      for (DeferredWeightGradients& microbatch : work) microbatch.run();
      for (const auto& [name, gradient] : at_once.gradients()) {
        INFO(name);
        CHECK(deferred.gradients().at(name).equal(gradient));
      }
    }
  }
}

TEST_CASE("layers: fusions change the losses and gradients of no model") {
  at::set_num_threads(1);
  std::vector<ModelSpec> models = small_others();
  append(models, small_attentions());
  models.insert(models.end(), {small_mixtures().front(), small_mixtures().back(), small_t5(),
                               small_gpt2(), small_llama()});
  ModelSpec drops = small_gpt2();
  drops.hidden_dropout = 0.2;
  models.push_back(drops);
  for (const ModelSpec& model : models) {
    INFO(model.name);
    const auto weights = arbitrary_weights(model, at::kDouble);
    const auto batch = arbitrary_batch(model, 2, 7);
    ModelOnRank fused(model, weights, nullptr);
    ModelOnRank plain(model, weights, nullptr, false, {}, program::kUnfused);
    for (ModelOnRank* rank : {&fused, &plain}) rank->set_context({.seed = 3, .trains = true});
    const double loss = fused.run(batch, true);
    CHECK(std::abs(plain.run(batch, true) - loss) < tolerance::kMicrobatchLoss * loss);
    for (const auto& [name, gradient] : fused.gradients()) {
      INFO(name);
      // The keys' bias has no gradient but rounding.
      if (name.ends_with("k.bias")) continue;
      CHECK(relative_difference(plain.gradients().at(name), gradient) <
            tolerance::kMicrobatchGradient);
    }
  }
}

// Each tensor that a call makes is rounded once, by at most `roundoff` of an element, and what
// lies between is fp32. Forward and backward of an embedding, two blocks and a head make about
// 4 + 2 * 16 + 4 tensors that the others depend on, so that the errors of a gradient cannot add up
// to more than that many times the roundoff, in the norm of the tensor.
TEST_CASE("layers: bf16 and fp16 agree with fp32 on the same weights") {
  at::set_num_threads(1);
  constexpr double kRoundings = 40;
  std::vector<ModelSpec> models = small_others();
  append(models, small_attentions());
  models.insert(models.end(), {small_mixtures().front(), small_t5(), small_gpt2(), small_llama()});
  for (ModelSpec& model : models) {
    // Where rounding changes the sign of what ReLU sees, its slope changes by all of it.
    if (model.mlp == MlpKind::kRelu) model.mlp = MlpKind::kGelu;
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const double roundoff = type == at::kBFloat16 ? 0x1p-9 : 0x1p-11;
      const auto batch = arbitrary_batch(model, 3, 66);
      NamedTensors narrow = arbitrary_weights(model, type), wide;
      for (const auto& [name, weight] : narrow) wide[name] = weight.to(at::kFloat);
      ModelOnRank exact(model, wide, nullptr), rounded(model, narrow, nullptr);
      const double loss = exact.run(batch, true);
      // A scale of the loss, as fp16 trains with.
      const double scale = type == at::kHalf ? 1024 : 1;
      INFO(model.name, " ", std::string(at::toString(type)));
      CHECK(std::abs(rounded.run(batch, true, scale) - loss) <= kRoundings * roundoff * loss);
      for (const auto& [name, gradient] : exact.gradients()) {
        // Next to nothing but rounding: softmax does not see what all keys have in common.
        if (name.ends_with("k.bias") || name.ends_with("k_norm.bias")) continue;
        INFO(name);
        const at::Tensor found = rounded.gradients().at(name);
        CHECK((found.scalar_type() == at::kFloat));
        const double error = found.div(scale).sub(gradient).norm().item().toDouble() /
                             gradient.norm().item().toDouble();
        CHECK(error <= kRoundings * roundoff);
      }
    }
  }
}
