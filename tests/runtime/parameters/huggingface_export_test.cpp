#include "smp/runtime/parameters/huggingface_export.h"

#include <ATen/core/Tensor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "files_and_errors.h"
#include "plan/small_models.h"
#include "runtime/state_plans.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/text/json.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/parameters/flat_parameters.h"
#include "smp/tensorfiles/pretrained/huggingface_weights.h"
#include "smp/tensorfiles/safetensors/number_formats.h"
#include "smp/tensorfiles/safetensors/safetensors.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::huggingface;
using namespace smp::jobs;
using namespace smp::layout;
using namespace smp::ledger;
using namespace smp::mesh;
using namespace smp::parameters;
using namespace smp::safetensors;
using namespace smp::text;

namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// So wide that its matrices are saved in several blocks.
Plan wide_plan(ModelFamily family, Degrees degrees) {
  Plan plan = small_plan(family, degrees);
  ModelSpec& model = plan.job.model;
  model.hidden_size = 128;
  model.head_dim = 32;
  model.ffn_hidden_size = 500;
  model.vocab_size = 1031;
  return plan;
}

void save_initial_weights(const Plan& plan, const std::string& dir) {
  run_ranks(static_cast<int>(plan.degrees.world()), [&](Communicator& world) {
    FlatParameters parameters(rank_layout(plan, world.rank()), compute_dtype(plan));
    parameters.initialise(7);
    save_weights(plan, parameters, world, dir);
    for (const TrafficCount& row : world.traffic()) CHECK(row.label == "save.weights");
  });
}

std::map<std::string, std::vector<int64_t>> shapes_of(const ModelSpec& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const HuggingFaceTensor& tensor : huggingface_tensors(model)) {
    shapes[tensor.name] = tensor.shape;
  }
  return shapes;
}

}  // namespace

TEST_CASE("the weights of every layout are saved as the same bytes as one rank's") {
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    const ScratchFolder folder;
    save_initial_weights(wide_plan(family, {}), folder / "one");
    const std::string expected = read_text(folder / "one/model.safetensors");
    int count = 0;
    for (const Degrees degrees :
         {Degrees{.pipeline = 2}, Degrees{.tensor = 2}, Degrees{.tensor = 4},
          Degrees{.pipeline = 2, .tensor = 2}, Degrees{.shard = 2, .replica = 2},
          Degrees{.pipeline = 3, .shard = 2}, Degrees{.tensor = 2, .shard = 3, .replica = 2}}) {
      for (const Sharding sharding : {Sharding::kOptimizerState, Sharding::kParameters}) {
        if (degrees.shard == 1 && sharding == Sharding::kParameters) continue;
        const std::string dir = folder / std::to_string(count++);
        Plan plan = wide_plan(family, degrees);
        if (degrees.shard > 1) plan.job.parallel.sharding = sharding;
        save_initial_weights(plan, dir);
        CHECK(read_text(dir + "/model.safetensors") == expected);
        CHECK(read_text(dir + "/config.json") == read_text(folder / "one/config.json"));
      }
    }
  }
}

// Of the experts' tensors each rank has a part, whose rows take turns with another parameter's.
TEST_CASE("the experts of gpt-oss are saved as the same bytes by every layout, and read back") {
  const auto plan_for = [](const Degrees& degrees) {
    Plan plan = wide_plan(ModelFamily::kLlama, degrees);
    ModelSpec oss = test::small_mixtures().back();
    REQUIRE(oss.name == "gpt-oss");
    oss.num_layers = plan.job.model.num_layers;
    oss.glu_limit = 7;
    oss.num_experts = 5;
    oss.hidden_size = 128;  // a block of the file is a part of an expert
    oss.expert_ffn_hidden_size = 300;
    plan.job.model = oss;
    return plan;
  };
  const ScratchFolder folder;
  save_initial_weights(plan_for({}), folder / "one");
  const std::string expected = read_text(folder / "one/model.safetensors");
  const Json config = Json::parse(read_text(folder / "one/config.json"));
  CHECK(config.at("model_type") == "gpt_oss");
  CHECK(config.at("layer_types")[0] == "sliding_attention");
  CHECK(config.at("layer_types")[1] == "full_attention");
  const SafetensorsReader file(folder / "one/model.safetensors");
  CHECK(file.find("model.layers.0.mlp.experts.gate_up_proj")->shape ==
        std::vector<int64_t>{5, 128, 600});
  CHECK(file.find("model.layers.0.mlp.experts.down_proj_bias")->shape ==
        std::vector<int64_t>{5, 128});
  int count = 0;
  for (const Degrees degrees : {Degrees{.tensor = 2}, Degrees{.tensor = 4},
                                Degrees{.pipeline = 2, .tensor = 2, .shard = 3}}) {
    Plan plan = plan_for(degrees);
    if (degrees.shard > 1) plan.job.parallel.sharding = Sharding::kParameters;
    const std::string dir = folder / std::to_string(count++);
    save_initial_weights(plan, dir);
    CHECK(read_text(dir + "/model.safetensors") == expected);
  }

  const Plan plan = plan_for({});
  FlatParameters parameters(rank_layout(plan, 0), DType::kF64);
  parameters.initialise(7);
  const pretrained::HuggingFaceWeights weights(folder / "one", plan.job.model);
  const auto& placed = parameters.layout().parameters;
  for (size_t i = 0; i < placed.size(); ++i) {
    const model::ParameterSpec& spec = placed[i].spec;
    std::vector<double> read(static_cast<size_t>(spec.size()));
    TensorPiece piece{.name = spec.name,
                      .shape = {spec.rows},
                      .dtype = DType::kF64,
                      .box = {0, spec.rows, 0, spec.cols},
                      .end = spec.size()};
    if (!spec.is_vector) piece.shape.push_back(spec.cols);
    piece.data = reinterpret_cast<std::byte*>(read.data());
    weights.read(piece);
    const at::Tensor own = parameters.weight(static_cast<int64_t>(i)).contiguous();
    INFO(spec.name);
    CHECK(std::equal(read.begin(), read.end(), own.const_data_ptr<double>()));
  }

  // As OpenAI's own files name what they store in 4 bits.
  std::vector<SafetensorsEntry> entries = file.header().entries;
  const std::string stored = "model.layers.0.mlp.experts.gate_up_proj";
  std::filesystem::create_directories(folder / "mxfp4");
  std::filesystem::copy(folder / "one/config.json", folder / "mxfp4/config.json");
  for (SafetensorsEntry& entry : entries) {
    if (entry.name == stored) entry.name += "_blocks";
  }
  SafetensorsWriter writer(folder / "mxfp4/model.safetensors", entries);
  for (size_t i = 0; i < entries.size(); ++i) {
    std::vector<std::byte> bytes(static_cast<size_t>(entries[i].bytes()));
    file.read(file.header().entries[i], bytes.data());
    writer.append(entries[i].name, bytes.data(), entries[i].bytes());
  }
  writer.finish();
  CHECK(error_of([&] {
          const pretrained::HuggingFaceWeights mxfp4(folder / "mxfp4", plan.job.model);
        }) == "training.init_from: " + (folder / "mxfp4") + " has no tensor '" + stored +
                  "': the experts are stored in MXFP4, which smp does not read: load the model "
                  "with transformers' Mxfp4Config(dequantize=True), and write it with "
                  "save_pretrained()");
}

TEST_CASE("GPT-2's saved q, k and v are one transposed tensor") {
  const ScratchFolder folder;
  const Plan plan = wide_plan(ModelFamily::kGpt2, {});
  save_initial_weights(plan, folder.path());
  const SafetensorsReader reader(folder / "model.safetensors");
  const SafetensorsEntry* entry = reader.find("transformer.h.1.attn.c_attn.weight");
  REQUIRE(entry != nullptr);
  CHECK(entry->shape == std::vector<int64_t>{128, 384});
  CHECK(entry->dtype == DType::kF64);
  std::vector<double> saved(128 * 384);
  reader.read(*entry, saved.data());

  FlatParameters parameters(rank_layout(plan, 0), DType::kF64);
  parameters.initialise(7);
  const int64_t q = parameters.range_of(2).first + 2;
  bool same = true;
  for (int64_t in = 0; in < 128; ++in) {
    for (int64_t out = 0; out < 384; ++out) {  // rows of three matrices [128, 128]
      const at::Tensor weight = parameters.weight(q + out / 128);
      same = same && saved[static_cast<size_t>(in * 384 + out)] ==
                         weight.const_data_ptr<double>()[out % 128 * 128 + in];
    }
  }
  CHECK(same);
}

TEST_CASE("saving needs two blocks beside the weights, however large a tensor is") {
  install_counting_allocator();
  const ScratchFolder folder;
  Plan plan = wide_plan(ModelFamily::kGpt2, {.tensor = 4});
  plan.job.model.vocab_size = 50257;
  run_ranks(4, [&](Communicator& world) {
    MemoryLedger ledger(world.rank(), 0);
    const LedgerScope scope(ledger);
    FlatParameters parameters(rank_layout(plan, world.rank()), DType::kF32);
    parameters.drop_gradients();
    ledger.reset_peak();
    save_weights(plan, parameters, world, folder.path());
    CHECK(ledger.peak().bytes - ledger.live().bytes <= 2 * (256 << 10));
  });
}

TEST_CASE("weights are saved in the type that is asked for, rounded to nearest") {
  const ScratchFolder folder;
  Plan plan = small_plan(ModelFamily::kGpt2, {.tensor = 2});
  save_initial_weights(plan, folder / "as-trained");
  plan.job.training.save_weights_as = Precision::kBf16;
  save_initial_weights(plan, folder / "bf16");
  const SafetensorsReader wide(folder / "as-trained/model.safetensors");
  const SafetensorsReader half(folder / "bf16/model.safetensors");
  for (const SafetensorsEntry& entry : wide.header().entries) {
    const SafetensorsEntry* saved = half.find(entry.name);
    REQUIRE(saved != nullptr);
    CHECK(saved->dtype == DType::kBF16);
    CHECK(saved->shape == entry.shape);
    const int64_t count = entry.bytes() / bytes_of(entry.dtype);
    std::vector<std::byte> trained(static_cast<size_t>(entry.bytes()));
    std::vector<std::byte> expected(static_cast<size_t>(2 * count)), found(expected.size());
    wide.read(entry, trained.data());
    half.read(*saved, found.data());
    convert_numbers(entry.dtype, trained.data(), count, DType::kBF16, expected.data(), 1);
    CHECK((found == expected));
  }
  CHECK(Json::parse(read_text(folder / "bf16/config.json")).at("dtype") == "bfloat16");
}

TEST_CASE("weights beyond fp16's range are saved as they were trained, and that is said") {
  const ScratchFolder folder;
  Plan plan = small_plan(ModelFamily::kGpt2, {.tensor = 2});
  plan.job.training.save_weights_as = Precision::kFp16;
  for (const double largest : {65504.0, 1e6}) {
    CAPTURE(largest);
    run_ranks(2, [&](Communicator& world) {
      FlatParameters parameters(rank_layout(plan, world.rank()), compute_dtype(plan));
      parameters.initialise(7);
      if (world.rank() == 1) {
        parameters.weight(0).mutable_data_ptr<double>()[0] = largest;
      }
      const std::string note = save_weights(plan, parameters, world, folder.path());
      CHECK(note ==
            (world.rank() == 0 && largest > 65504
                 ? "warning: training.save_weights_as: parameter 'transformer.wte.weight' has "
                   "values above 65504, the largest of fp16; the weights are saved as F64\n"
                 : ""));
    });
    const SafetensorsReader reader(folder / "model.safetensors");
    const DType dtype = largest > 65504 ? DType::kF64 : DType::kF16;
    CHECK(reader.header().entries[0].dtype == dtype);
    CHECK(read_text(folder / "config.json")
              .find(dtype == DType::kF64 ? "\"float64\"" : "\"float16\"") != std::string::npos);
  }
}

TEST_CASE("names and shapes are those of GPT2LMHeadModel") {
  const auto shapes = shapes_of(small_plan(ModelFamily::kGpt2, {}).job.model);
  CHECK(shapes.size() == 2 + 5 * 12 + 2);  // a tied head has no tensor of its own
  CHECK(shapes.at("transformer.wte.weight") == std::vector<int64_t>{259, 32});
  CHECK(shapes.at("transformer.wpe.weight") == std::vector<int64_t>{64, 32});
  CHECK(shapes.at("transformer.h.4.ln_1.bias") == std::vector<int64_t>{32});
  CHECK(shapes.at("transformer.h.4.attn.c_attn.bias") == std::vector<int64_t>{96});
  CHECK(shapes.at("transformer.h.4.attn.c_proj.weight") == std::vector<int64_t>{32, 32});
  CHECK(shapes.at("transformer.h.4.mlp.c_fc.weight") == std::vector<int64_t>{32, 128});
  CHECK(shapes.at("transformer.h.4.mlp.c_proj.weight") == std::vector<int64_t>{128, 32});
  CHECK(shapes.at("transformer.ln_f.bias") == std::vector<int64_t>{32});
}

TEST_CASE("names and shapes are those of LlamaForCausalLM") {
  const auto shapes = shapes_of(small_plan(ModelFamily::kLlama, {}).job.model);
  CHECK(shapes.size() == 1 + 5 * 9 + 2);
  CHECK(shapes.at("model.embed_tokens.weight") == std::vector<int64_t>{259, 32});
  CHECK(shapes.at("model.layers.0.input_layernorm.weight") == std::vector<int64_t>{32});
  CHECK(shapes.at("model.layers.0.self_attn.q_proj.weight") == std::vector<int64_t>{32, 32});
  CHECK(shapes.at("model.layers.0.self_attn.k_proj.weight") == std::vector<int64_t>{16, 32});
  CHECK(shapes.at("model.layers.0.self_attn.o_proj.weight") == std::vector<int64_t>{32, 32});
  CHECK(shapes.at("model.layers.4.mlp.down_proj.weight") == std::vector<int64_t>{32, 88});
  CHECK(shapes.at("model.norm.weight") == std::vector<int64_t>{32});
  CHECK(shapes.at("lm_head.weight") == std::vector<int64_t>{259, 32});
}

TEST_CASE("names are those of Qwen 2, Qwen 3 and Phi, and our own where nobody has the blocks") {
  const ModelSpec llama = small_plan(ModelFamily::kLlama, {}).job.model;
  const auto type_of = [](const ModelSpec& model) {
    return Json::parse(huggingface_config(model, DType::kBF16)).at("model_type");
  };
  ModelSpec qwen2 = llama;
  qwen2.qkv_bias = true;
  CHECK(type_of(qwen2) == "qwen2");
  CHECK(shapes_of(qwen2).at("model.layers.0.self_attn.k_proj.bias") == std::vector<int64_t>{16});
  ModelSpec qwen3 = llama;
  qwen3.qk_norm = true;
  CHECK(type_of(qwen3) == "qwen3");
  CHECK(shapes_of(qwen3).at("model.layers.4.self_attn.q_norm.weight") == std::vector<int64_t>{8});
  ModelSpec olmoe = llama;
  olmoe.qk_norm = true;
  olmoe.qk_norm_over = QkNormOver::kAllHeads;
  CHECK(type_of(olmoe) == "smp");  // dense
  olmoe.num_experts = 4;
  olmoe.experts_per_token = 2;
  olmoe.expert_ffn_hidden_size = 16;
  CHECK(type_of(olmoe) == "olmoe");
  CHECK(shapes_of(olmoe).at("model.layers.0.self_attn.k_norm.weight") == std::vector<int64_t>{16});
  olmoe.router_bias = true;
  CHECK(type_of(olmoe) == "smp");
  ModelSpec phi = small_plan(ModelFamily::kGpt2, {}).job.model;
  phi.position_embedding = PositionKind::kRotary;
  phi.head_bias = phi.parallel_residual = phi.shared_norm = true;
  phi.tied_embeddings = false;
  CHECK(type_of(phi) == "phi");
  CHECK(shapes_of(phi).size() == 1 + 5 * 14 + 4);
  CHECK(shapes_of(phi).at("model.layers.0.self_attn.dense.bias") == std::vector<int64_t>{32});
  CHECK(shapes_of(phi).at("lm_head.bias") == std::vector<int64_t>{259});
  ModelSpec other = llama;
  other.mlp = MlpKind::kGeglu;
  CHECK(type_of(other) == "llama");  // whose hidden_act may be any
  other.norm = NormKind::kLayerNorm;
  CHECK(type_of(other) == "smp");
  CHECK(shapes_of(other).at("layers.0.attention.q.weight") == std::vector<int64_t>{32, 32});
}

TEST_CASE(
    "config.json says what AutoModelForCausalLM needs, in the words of transformers 4 and 5") {
  const Json gpt2 =
      Json::parse(huggingface_config(small_plan(ModelFamily::kGpt2, {}).job.model, DType::kF32));
  CHECK(gpt2.at("architectures") == Json{"GPT2LMHeadModel"});
  CHECK(gpt2.at("n_inner") == 128);
  CHECK(gpt2.at("tie_word_embeddings") == true);
  CHECK(gpt2.at("torch_dtype") == "float32");
  CHECK(gpt2.at("dtype") == "float32");
  const Json llama =
      Json::parse(huggingface_config(small_plan(ModelFamily::kLlama, {}).job.model, DType::kF64));
  CHECK(llama.at("architectures") == Json{"LlamaForCausalLM"});
  CHECK(llama.at("num_key_value_heads") == 2);
  CHECK(llama.at("rope_theta") == 10000.0);
  CHECK(llama.at("rope_parameters") == Json{{"rope_theta", 10000.0}, {"rope_type", "default"}});
  CHECK(llama.at("tie_word_embeddings") == false);
  CHECK(llama.at("torch_dtype") == "float64");
}
