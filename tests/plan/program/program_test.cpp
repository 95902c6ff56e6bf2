#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "plan/list_samples.h"
#include "plan/small_models.h"
#include "smp/plan/program/build.h"
#include "smp/plan/program/fusions.h"
#include "smp/plan/program/liveness.h"
#include "smp/plan/program/verify.h"

using namespace smp;
using namespace smp::model;
using namespace smp::program;
using namespace smp::test;

namespace {

std::vector<ModelSpec> all_models() {
  std::vector<ModelSpec> models{small_gpt2(), small_llama(), small_t5(), small_t5_gated()};
  for (const ModelSpec& model : small_others()) models.push_back(model);
  for (const ModelSpec& model : small_mixtures()) models.push_back(model);
  const size_t count = models.size();
  for (size_t i = 0; i < count; ++i) {
    ModelSpec drops = models[i];
    drops.name += ", dropout";
    drops.hidden_dropout = 0.1;
    drops.attention_dropout = 0.2;
    models.push_back(drops);
  }
  for (const ModelSpec& model : {small_list(), flat_list(), cut_list()}) models.push_back(model);
  return models;
}

std::vector<LayerCall> calls_of(const ModelSpec& model) {
  std::vector<LayerCall> calls;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const int64_t degree : {1, 2}) {
      for (const bool split : {false, true}) {
        if (split && (degree == 1 || is_list(model))) continue;
        for (const bool shares : {true, false}) {
          LayerCall call{.micro_batch = 2,
                         .sequence_length = is_list(model) ? 1 : 70,
                         .tensor_degree = degree,
                         .tensor_rank = degree - 1,
                         .dtype = dtype,
                         .sequence_parallel = split};
          if (!shares) {
            if (degree == 1 || is_list(model)) continue;
            call.kinds = {.attention = false, .mlp = false, .embedding = false};
          }
          calls.push_back(call);
        }
      }
    }
  }
  return calls;
}

}  // namespace

TEST_CASE("programs: every layer's is proved, fused or not") {
  for (const ModelSpec& model : all_models()) {
    for (const LayerCall& call : calls_of(model)) {
      for (const LayerSpec& layer : layers_of(model)) {
        INFO(model.name, " ", layer.name, " degree ", call.tensor_degree, " split ",
             call.sequence_parallel, " shares ", call.kinds.mlp, " bytes ", bytes_of(call.dtype));
        CHECK(verify(build_unfused(model, layer, call)) == "");
        CHECK(verify(build(model, layer, call)) == "");
      }
    }
  }
}
