#include "smp/plan/program/habits.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "plan/small_models.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/program/build.h"
#include "smp/plan/program/liveness.h"
#include "smp/plan/program/verify.h"
#include "smp/plan/program/work.h"

// Programs of other frameworks. Their forwards come from the builders, so that what is tested here
// is what a habit changes, and the backward that is derived from the forward.

using namespace smp;
using namespace smp::model;
using namespace smp::program;

namespace {

ModelSpec published(const char* name) {
  return jobfile::read_job({{"job.yaml", std::string("model: ") + name + "\ncluster: dgx-h100\n"}},
                           {})
      .model;
}

// Every kind of layer once.
std::vector<LayerSpec> kinds_of(const ModelSpec& model) {
  std::vector<LayerSpec> layers;
  for (const LayerSpec& layer : layers_of(model)) {
    bool is_known = false;
    for (const LayerSpec& known : layers) is_known = is_known || are_alike(model, known, layer);
    if (!is_known) layers.push_back(layer);
  }
  return layers;
}

LayerCall call_of(int64_t tensor, bool split) {
  LayerCall call{.micro_batch = 2,
                 .sequence_length = 512,
                 .tensor_degree = tensor,
                 .dtype = DType::kBF16,
                 .sequence_parallel = split};
  call.expert_degree = 2;
  call.fullest_experts = 1.25;
  return call;
}

std::vector<Habits> all_habits() {
  std::vector<Habits> all;
  for (int bits = 0; bits < 64; ++bits) {
    Habits habits;
    habits.logit = {6, 4, 6};
    habits.fused_kernels = (bits & 1) != 0;
    habits.fused_gate = (bits & 2) != 0;
    habits.flash_attention = (bits & 4) != 0;
    habits.fused_weight_gradients = (bits & 8) != 0;
    habits.keeps_expert_outputs = (bits & 16) != 0;
    habits.repeats_kv_heads = (bits & 16) == 0;
    habits.narrow_bytes = (bits & 32) != 0 ? 1 : 0;
    habits.dropped = bits % 3 == 0 ? Dropped::kNothing : Dropped::kModules;
    habits.modules.core_attention = bits % 3 == 1;
    habits.modules.mlp = habits.modules.moe = habits.modules.mla_up = bits % 3 == 2;
    habits.modules.norms = bits % 2 == 0;
    all.push_back(habits);
  }
  return all;
}

double flops(const LayerProgram& program, Section section,
             std::initializer_list<OperationKind> of) {
  const std::set<OperationKind> kinds(of);
  double sum = 0;
  for (const Operation& operation : program.section(section)) {
    if (kinds.count(operation.kind) > 0) sum += work_of(program, operation).flops;
  }
  return sum;
}

}  // namespace

TEST_CASE("habits: the programs of all kinds of layers are proved, whatever a framework does") {
  for (const char* name : {"gpt2-124m", "llama2-7b", "gemma2-2b", "phi-2", "qwen3-4b", "bert-base",
                           "t5-base", "mixtral-8x7b", "deepseek-v3", "nemotron3-nano-30b-a3b"}) {
    ModelSpec model = published(name);
    for (const double dropout : {0.0, 0.1}) {
      model.hidden_dropout = model.attention_dropout = dropout;
      for (const LayerSpec& layer : kinds_of(model)) {
        for (const bool split : {false, true}) {
          for (const Habits& habits : all_habits()) {
            INFO(name, " ", layer.name, " split ", split, " dropout ", dropout, " flash ",
                 habits.flash_attention, " fused ", habits.fused_kernels);
            CHECK(verify(build_as(model, layer, call_of(split ? 2 : 1, split), habits)) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("habits: each product has two gradients, of its input and of its weight") {
  for (const char* name : {"llama2-7b", "deepseek-v3", "nemotron3-nano-30b-a3b"}) {
    const ModelSpec model = published(name);
    for (const LayerSpec& layer : kinds_of(model)) {
      if (!is_transformer_block(layer.kind)) continue;
      const LayerProgram program = build_as(model, layer, call_of(2, true), {});
      const double forward = flops(
          program, Section::kForward,
          {OperationKind::kProduct, OperationKind::kExpertProduct, OperationKind::kRouterScores});
      const double inputs =
          flops(program, Section::kBackward,
                {OperationKind::kInputGradient, OperationKind::kExpertInputGradient,
                 OperationKind::kRouterInputGradient});
      const double weights =
          flops(program, Section::kBackward,
                {OperationKind::kWeightGradient, OperationKind::kExpertWeightGradient,
                 OperationKind::kRouterWeightGradient});
      CAPTURE(name);
      CAPTURE(layer.name);
      CHECK(forward > 0);
      CHECK(inputs == doctest::Approx(forward));
      CHECK(weights == doctest::Approx(forward));
    }
  }
}

TEST_CASE("habits: a dense forward multiplies as much as our engine's") {
  for (const ModelSpec& model : {test::small_gpt2(), test::small_llama()}) {
    for (const LayerSpec& layer : kinds_of(model)) {
      const LayerCall call{.micro_batch = 2, .sequence_length = 64, .dtype = DType::kBF16};
      const double own = work_of(build(model, layer, call), Section::kForward).flops;
      CHECK(work_of(build_as(model, layer, call, {}), Section::kForward).flops == own);
    }
  }
}

TEST_CASE("habits: frozen matrices have no gradient and keep no input") {
  const ModelSpec model = published("llama2-7b");
  const LayerSpec block = layers_of(model)[1];
  const LayerCall call{.micro_batch = 1, .sequence_length = 4096, .dtype = DType::kBF16};
  Habits habits;
  const LayerMemory trained = memory_of(build_as(model, block, call, habits));
  habits.trains = false;
  const LayerProgram frozen = build_as(model, block, call, habits);
  for (const Operation& operation : frozen.section(Section::kBackward)) {
    CHECK(operation.gradients.empty());
    CHECK(operation.kind != OperationKind::kWeightGradient);
  }
  // Both norms' outputs and the product of gate and up; flash attention keeps its own result.
  const int64_t s = 4096, h = 4096, f = 11008;
  CHECK(trained.saved_bytes - memory_of(frozen).saved_bytes == 2 * s * (2 * h + f));
}

TEST_CASE("habits: a program for more samples is the one that is built for them") {
  for (const char* name :
       {"gpt2-124m", "llama2-7b", "t5-base", "deepseek-v3", "nemotron3-nano-30b-a3b"}) {
    const ModelSpec model = published(name);
    for (const LayerSpec& layer : kinds_of(model)) {
      for (const Habits& habits : all_habits()) {
        LayerCall call = call_of(2, true);
        call.micro_batch = 1;
        LayerProgram grown = build_as(model, layer, call, habits);
        set_samples(grown, 1, 3);
        call.micro_batch = 3;
        const LayerProgram built = build_as(model, layer, call, habits);
        CAPTURE(name);
        CAPTURE(layer.name);
        const LayerMemory a = memory_of(grown), b = memory_of(built);
        CHECK(a.saved_bytes == b.saved_bytes);
        CHECK(a.forward_peak_bytes == b.forward_peak_bytes);
        CHECK(a.backward_peak_bytes == b.backward_peak_bytes);
        CHECK(a.recomputable_bytes == b.recomputable_bytes);
        for (const Section section : {Section::kForward, Section::kBackward}) {
          CHECK(work_of(grown, section).flops == doctest::Approx(work_of(built, section).flops));
          CHECK(work_of(grown, section).moved_bytes() == work_of(built, section).moved_bytes());
        }
      }
    }
  }
}

TEST_CASE("habits: norms that are made again are those in front of attention and MLP") {
  Habits habits;
  habits.dropped = Dropped::kModules;
  habits.modules.norms = true;
  const auto norms_of = [&](const ModelSpec& model, const LayerSpec& layer) {
    std::string names;
    const LayerProgram program = build_as(model, layer, call_of(1, false), habits);
    for (const Operation& operation : program.section(Section::kRematerialize)) {
      if (operation.kind == OperationKind::kNorm)
        names += program.value(operation.in(1)).name + ' ';
    }
    return names;
  };
  const ModelSpec qwen = published("qwen3-4b");  // has norms of heads
  CHECK(norms_of(qwen, layers_of(qwen)[1]) == "attention_norm.weight mlp_norm.weight ");
  CHECK(norms_of(qwen, layers_of(qwen).back()).empty());  // no block

  const ModelSpec deepseek = published("deepseek-v3");  // has norms of latents
  const std::vector<LayerSpec> layers = layers_of(deepseek);
  CHECK(norms_of(deepseek, layers[1]) == "attention_norm.weight mlp_norm.weight ");
  const auto further = std::find_if(layers.begin(), layers.end(), [](const LayerSpec& layer) {
    return layer.kind == LayerKind::kMtpBlock;
  });
  REQUIRE(further != layers.end());
  CHECK(norms_of(deepseek, *further) == "attention_norm.weight mlp_norm.weight ");

  // The one norm of a hybrid's layer; Megatron does not repeat those of Mamba-2 mixers.
  const ModelSpec hybrid = published("nemotron-h-8b");
  for (const LayerSpec& layer : kinds_of(hybrid)) {
    if (!is_transformer_block(layer.kind)) continue;
    const bool scans = layer_letter(hybrid, layer.index - 1) == kMambaLetter;
    CHECK(norms_of(hybrid, layer) == (scans ? "" : "norm.weight "));
  }
}

TEST_CASE("habits: context ranks send keys and values once round, and their gradients twice") {
  const ModelSpec model = published("llama3-8b");
  LayerCall call{.micro_batch = 1, .sequence_length = 1024, .dtype = DType::kBF16};
  call.context.ring = 4;
  const LayerProgram program = build_as(model, layers_of(model)[1], call, {});
  int64_t keys = 0;
  for (const Operation& operation : program.section(Section::kForward)) {
    if (operation.kind == OperationKind::kAttention) {
      keys = operation.as<AttentionAttributes>().keys;
    }
  }
  CHECK(keys == 4096);
}
