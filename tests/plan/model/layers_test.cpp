#include "smp/plan/model/layers.h"

#include <doctest/doctest.h>

#include <map>

#include "plan/model_samples.h"
#include "smp/plan/spec/seen_pairs.h"

using namespace smp;
using namespace smp::model;

namespace {

std::vector<std::string> names_of(const ModelSpec& model, int64_t layer) {
  std::vector<std::string> names;
  for (const ParameterSpec& p :
       parameters_of(model, layers_of(model)[static_cast<size_t>(layer)])) {
    names.push_back(p.name);
  }
  return names;
}

ParameterSpec find(const ModelSpec& model, const std::string& name) {
  for (const LayerSpec& layer : layers_of(model)) {
    for (const ParameterSpec& p : parameters_of(model, layer)) {
      if (p.name == name) return p;
    }
  }
  FAIL("no parameter " << name);
  return {};
}

}  // namespace

TEST_CASE("parameter counts equal the published totals to the parameter") {
  CHECK(parameter_count(gpt2_124m()) == 124'439'808);
  CHECK(parameter_count(gpt2_1558m()) == 1'557'611'200);
  CHECK(parameter_count(llama2_7b()) == 6'738'415'616);
  CHECK(parameter_count(llama2_13b()) == 13'015'864'320);
  CHECK(parameter_count(llama2_70b()) == 68'976'648'192);
  CHECK(parameter_count(llama3_8b()) == 8'030'261'248);
}

TEST_CASE("an untied head adds one vocabulary matrix") {
  ModelSpec model = gpt2_124m();
  const int64_t tied = parameter_count(model);
  model.tied_embeddings = false;
  CHECK(parameter_count(model) == tied + model.vocab_size * model.hidden_size);
}

TEST_CASE("a gpt2 model is embedding, blocks and head, with parameters in flat order") {
  const ModelSpec model = small_gpt2();
  const std::vector<LayerSpec> layers = layers_of(model);
  REQUIRE(layers.size() == 7);
  CHECK(layers[0].name == "embedding");
  CHECK(layers[5].name == "layers.4");
  CHECK(layers[5].index == 5);
  CHECK(layers[6].kind == LayerKind::kHead);
  CHECK(names_of(model, 0) ==
        std::vector<std::string>{"embedding.tokens.weight", "embedding.positions.weight"});
  CHECK(names_of(model, 1) ==
        std::vector<std::string>{
            "layers.0.attention_norm.weight", "layers.0.attention_norm.bias",
            "layers.0.attention.q.weight", "layers.0.attention.k.weight",
            "layers.0.attention.v.weight", "layers.0.attention.q.bias", "layers.0.attention.k.bias",
            "layers.0.attention.v.bias", "layers.0.attention.output.weight",
            "layers.0.attention.output.bias", "layers.0.mlp_norm.weight", "layers.0.mlp_norm.bias",
            "layers.0.mlp.up.weight", "layers.0.mlp.up.bias", "layers.0.mlp.down.weight",
            "layers.0.mlp.down.bias"});
  CHECK(names_of(model, 6) == std::vector<std::string>{"head.norm.weight", "head.norm.bias"});
}

TEST_CASE("a llama block keeps q, k, v and gate, up as neighbours") {
  const ModelSpec model = small_llama();
  CHECK(names_of(model, 0) == std::vector<std::string>{"embedding.tokens.weight"});
  CHECK(names_of(model, 2) ==
        std::vector<std::string>{"layers.1.attention_norm.weight", "layers.1.attention.q.weight",
                                 "layers.1.attention.k.weight", "layers.1.attention.v.weight",
                                 "layers.1.attention.output.weight", "layers.1.mlp_norm.weight",
                                 "layers.1.mlp.gate.weight", "layers.1.mlp.up.weight",
                                 "layers.1.mlp.down.weight"});
  CHECK(names_of(model, 6) == std::vector<std::string>{"head.norm.weight", "head.weight"});
}

TEST_CASE("weight decay is on for matrices, off for norms, biases and positions") {
  const ModelSpec model = small_gpt2();
  std::map<std::string, bool> decays;
  for (const LayerSpec& layer : layers_of(model)) {
    for (const ParameterSpec& p : parameters_of(model, layer)) decays[p.name] = p.weight_decay;
  }
  CHECK(decays["embedding.tokens.weight"]);
  CHECK_FALSE(decays["embedding.positions.weight"]);
  CHECK(decays["layers.0.mlp.down.weight"]);
  CHECK_FALSE(decays["layers.0.mlp.down.bias"]);
  CHECK_FALSE(decays["head.norm.weight"]);
}

TEST_CASE("matrices that write to the residual stream start smaller") {
  ModelSpec model = small_gpt2();
  model.num_layers = 8;
  CHECK(find(model, "layers.3.attention.q.weight").init_std == doctest::Approx(0.02));
  CHECK(find(model, "layers.3.attention.output.weight").init_std == doctest::Approx(0.005));
  CHECK(find(model, "layers.3.mlp.down.weight").init_std == doctest::Approx(0.005));
  CHECK(find(model, "layers.3.mlp_norm.weight").init == Init::kOnes);
  CHECK(find(model, "layers.3.mlp.up.bias").init == Init::kZeros);
}

TEST_CASE("tensor ranks cut every split parameter exactly") {
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    for (const int64_t t : {1, 2, 4}) {
      for (const LayerSpec& layer : layers_of(model)) {
        for (const ParameterSpec& p : parameters_of(model, layer)) {
          CAPTURE(p.name);
          int64_t held = 0;
          for (int64_t i = 0; i < t; ++i) held += tensor_box(model, p, t, i).size();
          const int64_t copies = p.split == TensorSplit::kReplicated ? t
                                 : p.split == TensorSplit::kKvHeads  ? kv_copies(model, t)
                                                                     : 1;
          CHECK(held == copies * p.size());
        }
      }
    }
  }
}

TEST_CASE("an uneven vocabulary gives the first tensor ranks one row more") {
  const ModelSpec model = small_gpt2();  // 257 rows
  const ParameterSpec tokens = find(model, "embedding.tokens.weight");
  CHECK(tensor_box(model, tokens, 4, 0) == Box{0, 65, 0, 48});
  CHECK(tensor_box(model, tokens, 4, 1) == Box{65, 129, 0, 48});
  CHECK(tensor_box(model, tokens, 4, 3) == Box{193, 257, 0, 48});
}

TEST_CASE("with more tensor ranks than KV heads, neighbours hold the same head") {
  const ModelSpec model = small_llama();  // 2 KV heads of 8
  const ParameterSpec k = find(model, "layers.0.attention.k.weight");
  CHECK(kv_copies(model, 1) == 1);
  CHECK(kv_copies(model, 2) == 1);
  CHECK(kv_copies(model, 4) == 2);
  CHECK(tensor_box(model, k, 2, 1) == Box{8, 16, 0, 32});
  CHECK(tensor_box(model, k, 4, 0) == Box{0, 8, 0, 32});
  CHECK(tensor_box(model, k, 4, 1) == Box{0, 8, 0, 32});
  CHECK(tensor_box(model, k, 4, 2) == Box{8, 16, 0, 32});
}

TEST_CASE("a row-parallel weight is cut along its columns") {
  const ModelSpec model = small_gpt2();
  CHECK(tensor_box(model, find(model, "layers.0.mlp.down.weight"), 2, 1) == Box{0, 48, 96, 192});
}

TEST_CASE("a window leaves out the pairs of queries and keys before it") {
  ModelSpec model = small_llama();
  CHECK(seen_pairs(model, 100) == 5000);
  model.sliding_window = 100;
  CHECK(seen_pairs(model, 100) == 5000);
  model.sliding_window = 10;
  CHECK(seen_pairs(model, 100) == 950);  // 90 rows of 10, and the first 10 half
}
