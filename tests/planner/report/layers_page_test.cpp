#include "smp/planner/report/layers_page.h"

#include <doctest/doctest.h>

#include "plan/plan_samples.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"

using namespace smp;
using namespace smp::report;

namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("layers page: alike layers once, each operation on a line") {
  const std::string text = layers_text(sample_plan(small_gpt2(), {}), "");
  INFO(text);
  CHECK(has(text, "layers.0 to layers.4 (5 alike)"));
  CHECK(has(text,
            "attention qkv* [32 tokens x 144 heads] = product(attention norm, "
            "attention.q.weight..attention.v.weight)"));
  CHECK(has(text, "x + mlp in place of down = add branch(x + attention, down, mlp.down.bias)"));
  CHECK(has(text, "in all, 9 operations"));
  CHECK(has(text,
            "fused: bias and activation (1), bias and attention (1), branch sum (2), "
            "sum and norm (1)"));
  CHECK_FALSE(has(text, "all_reduce"));
  CHECK_FALSE(has(text, "gradients of weights"));
}

TEST_CASE("layers page: messages of tensor ranks, and the halves of a deferring schedule") {
  const std::string text = layers_text(
      sample_plan(small_gpt2(), {.pipeline = 2, .tensor = 2, .pipeline_kind = PipelineKind::kZbH1}),
      "layers.1");
  INFO(text);
  CHECK(has(text, "rank 0 of 2 tensor ranks"));
  CHECK(has(text,
            "attention output summed in place of attention output = all_reduce(attention output)"));
  CHECK(has(text, "backward of inputs"));
  CHECK(has(text, "gradients of weights"));
  CHECK_FALSE(has(text, "embedding"));
}

TEST_CASE("layers page: a layer that the model does not have") {
  CHECK_THROWS_WITH_AS(
      layers_text(sample_plan(small_gpt2(), {}), "layer.3"),
      "--layer: the model has no layer 'layer.3' (did you mean 'layers.3'?); it has embedding, "
      "layers.0 to layers.4 (5 alike), head",
      ConfigError);
}

TEST_CASE("layers page: of another framework's plan its own program") {
  Plan plan = sample_plan(small_gpt2(), {.tensor = 2, .precision = Precision::kBf16});
  plan.job.cluster.device = DeviceKind::kCuda;
  plan.job.parallel.framework = framework::framework_named("megatron-core");
  plan.job.model.hidden_dropout = 0.1;
  const std::string text = layers_text(plan, "layers.0");
  INFO(text);
  CHECK(has(text, "as Megatron-LM (megatron/core) with Transformer Engine runs it on GPUs"));
  // What its products read is kept, and so are dropout's masks; nothing is overwritten.
  CHECK(has(text, "attention norm* ["));
  CHECK(has(text, "mask* ["));
  CHECK(has(text, "d attention qkv ["));
  CHECK_FALSE(has(text, "norm again"));
}

TEST_CASE("layers page: of our engine's plan for GPUs the program that its ranks execute") {
  Plan plan = sample_plan(small_gpt2(), {.tensor = 2, .precision = Precision::kBf16});
  const std::string on_cpus = layers_text(plan, "layers.0");
  plan.job.cluster.device = DeviceKind::kCuda;
  CHECK(layers_text(plan, "layers.0") == on_cpus);
  CHECK_FALSE(has(on_cpus, "as smp runs it"));
}

TEST_CASE("layers page: layers that the engine does not run have no program") {
  ModelSpec model = small_gpt2();
  model.norm_placement = NormPlacement::kBoth;
  const std::string text = layers_text(sample_plan(model, {}), "layers.0");
  CHECK(
      has(text, "layers.0: the engine does not run this layer in this job, so it has no program"));
  CHECK(has(text, "model.norm_placement: after or both"));
  CHECK_FALSE(has(text, "take rows"));
}

TEST_CASE("layers page: as HTML the same lines") {
  const std::string html = layers_html(sample_plan(small_gpt2(), {}), "head");
  CHECK(has(html, "softmax loss(logits, targets)"));
  CHECK(has(html, "<title>The layers of"));
}
