#include "smp/interchange/importers/import.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "importers/foreign_keys.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/layers.h"

// Foreign files as data: tests/golden/interchange/import holds files and, beside each, the job file
// that it becomes; bad holds files whose name begins with their format, and the exact complaint.
// SMP_UPDATE_GOLDEN=1 writes the expected files anew, for a change whose diff one then reads.

using namespace smp;
using namespace smp::importers;
using namespace smp::jobfile;
using namespace smp::mesh;
using namespace smp::model;

namespace {

const std::string kFolder = SMP_SOURCE_DIR "/tests/golden/interchange/";

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + folder)) {
    if (entry.path().extension() != ".expected") out.push_back(entry.path());
  }
  std::ranges::sort(out);
  return out;
}

void check_expected(const std::filesystem::path& path, const std::string& text) {
  const std::string expected = path.string() + ".expected";
  if (std::getenv("SMP_UPDATE_GOLDEN") != nullptr) std::ofstream(expected) << text;
  INFO(path.string());
  CHECK(text == contents(expected));
}

std::string error_of(const auto& run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

ForeignFormat format_by_name(const std::string& name) {
  for (int i = 0; i < kForeignFormats; ++i) {
    const auto format = static_cast<ForeignFormat>(i);
    if (name.starts_with(std::string(name_of(format)) + "-")) return format;
  }
  FAIL("no format in the name ", name);
  return ForeignFormat::kHuggingFace;
}

const std::vector<ForeignKey>& keys_of(ForeignFormat format) {
  switch (format) {
    case ForeignFormat::kHuggingFace: return huggingface_keys();
    case ForeignFormat::kSmpV1: return smp_v1_keys();
    case ForeignFormat::kSmpV2: return smp_v2_keys();
    case ForeignFormat::kDeepSpeed: return deepspeed_keys();
    case ForeignFormat::kMegatron: return megatron_keys();
    case ForeignFormat::kAccelerate: return accelerate_keys();
    case ForeignFormat::kNemo: return nemo_keys();
    case ForeignFormat::kTorchTitan: return torchtitan_keys();
    case ForeignFormat::kLlamaFactory: return llama_factory_keys();
    case ForeignFormat::kAxolotl: return axolotl_keys();
    case ForeignFormat::kAutomodel: return automodel_keys();
    case ForeignFormat::kSageMaker: break;  // its dictionaries have those of SMP
  }
  static const std::vector<ForeignKey> kNone;
  return kNone;
}

}  // namespace

TEST_CASE("foreign files become the job files beside them") {
  for (const auto& path : files_in("import")) {
    const JobSource source{path.filename().string(), contents(path)};
    INFO(source.path);
    CHECK(recognise(source) == format_by_name(source.path));
    const std::vector<Imported> files = import_sources({source}, std::nullopt);
    std::string text = imported_job_yaml(files);
    for (const std::string& warning : files.front().warnings) text += "warning: " + warning + "\n";
    check_expected(path, text);
  }
}

TEST_CASE("an imported job is a file of smp, though its comments name flags and scripts") {
  const std::string words = "job.sh: this is a job file of smp, which needs no import";
  int read = 0;
  for (const auto& path : files_in("import")) {
    std::string job = contents(path.string() + ".expected");
    job = job.substr(0, std::min(job.find("\nwarning: "), job.size() - 1) + 1);
    INFO(path.string());
    CHECK_FALSE(foreign_format({"job.sh", job}).has_value());
    CHECK(error_of([&] { recognise({"job.sh", job}); }) == words);
    ++read;
  }
  CHECK(read >= 60);
  CHECK_FALSE(foreign_format({"j.yaml", "# --num-layers\nmodel: {}\ntrainnig: {}\n"}).has_value());
}

TEST_CASE("bad foreign files are refused with these words") {
  const auto files = files_in("bad");
  CHECK(files.size() >= 60);
  for (const auto& path : files) {
    const JobSource source{path.filename().string(), contents(path)};
    const ForeignFormat format = format_by_name(source.path);
    check_expected(path, error_of([&] { import_source(source, format); }) + "\n");
  }
}

TEST_CASE("config.json of ten types gives transformers' own parameter counts") {
  std::istringstream counts(contents(kFolder + "huggingface/counts.txt"));
  std::string name;
  int64_t expected = 0;
  int read = 0;
  while (counts >> name >> expected) {
    INFO(name);
    const JobSource source{name + ".json", contents(kFolder + "huggingface/" + name + ".json")};
    CHECK(recognise(source) == ForeignFormat::kHuggingFace);
    const auto files = import_sources({source}, std::nullopt);
    const JobSpec job = read_job({{name, imported_job_yaml(files)}});
    CHECK(parameter_count(job.model) == expected);
    CHECK(files.front().warnings.empty());
    ++read;
  }
  CHECK(read >= 20);
}

TEST_CASE("every key of every table names keys that a job file has, and is told apart") {
  const std::string all = job_template({}, "");
  for (int i = 0; i < kForeignFormats; ++i) {
    const auto format = static_cast<ForeignFormat>(i);
    std::vector<std::string_view> seen;
    for (const ForeignKey& row : keys_of(format)) {
      INFO(name_of(format), " ", row.key);
      CHECK(std::ranges::count(seen, row.key) == 0);
      seen.push_back(row.key);
      const bool says_why = row.use == Use::kIgnored || row.use == Use::kRefused;
      CHECK((!says_why || !row.meaning.empty()));
      CHECK((row.use != Use::kCopied || !row.target.empty()));
      std::istringstream targets{std::string(row.target)};
      for (std::string target; std::getline(targets, target, ',');) {
        target.erase(0, target.find_first_not_of(' '));
        CHECK(all.find(fmt::format("#{}:", target.substr(target.rfind('.') + 1))) !=
              std::string::npos);
      }
    }
  }
}

TEST_CASE("what a file is, is seen by its content") {
  const auto format = [](const std::string& text) { return recognise({"x", text}); };
  CHECK(format(R"({"model_type": "llama"})") == ForeignFormat::kHuggingFace);
  CHECK(format(R"({"n_embd": 4, "n_layer": 2})") == ForeignFormat::kHuggingFace);
  CHECK(format(R"({"partitions": 2})") == ForeignFormat::kSmpV1);
  CHECK(format(R"({"hybrid_shard_degree": 2})") == ForeignFormat::kSmpV2);
  CHECK(format(R"({"zero_optimization": {"stage": 1}})") == ForeignFormat::kDeepSpeed);
  CHECK(format("python x.py --num-layers 2") == ForeignFormat::kMegatron);
  CHECK(format("distributed_type: FSDP\n") == ForeignFormat::kAccelerate);
  const auto refused = [](const std::string& text) {
    return error_of([&] { recognise({"x", text}); });
  };
  CHECK(refused(R"({"tensor_parallel_degree": 2})") ==
        "x: an SMP dictionary whose keys exist in both versions: give --from smp-v1 or --from "
        "smp-v2");
  CHECK(refused(R"({"partitions": 2, "hybrid_shard_degree": 2})") ==
        "x: an SMP dictionary with keys of both versions: give --from smp-v1 or --from smp-v2");
  CHECK(refused("{}") ==
        "x: the format of this JSON is not clear from its keys: give --from hf, smp-v1, smp-v2 or "
        "deepspeed");
  CHECK(refused("model: {}\n") == "x: this is a job file of smp, which needs no import");
  const auto says = [&](const std::string& text, const std::string& head) {
    const std::string message = refused(text);
    INFO(message);
    CHECK(message.starts_with("x: this is " + head + ", which"));
  };
  CHECK(format("trainer: {devices: 8, num_nodes: 2}\nmodel: {tensor_model_parallel_size: 4}\n") ==
        ForeignFormat::kNemo);
  CHECK(format("exp_manager: {}\nmodel: {}\n") == ForeignFormat::kNemo);
  CHECK(format("train: {global_batch_size: 8}\nddp: {}\n") == ForeignFormat::kNemo);
  CHECK(format("nemo llm pretrain --factory llama3_8b\n") == ForeignFormat::kNemo);
  CHECK(format("# as run_recipe.py --recipe x\npython x.py --num-layers 2\n") ==
        ForeignFormat::kMegatron);
  CHECK(format("language_model: {num_layers: 2}\nmodel_parallel: {}\n") ==
        ForeignFormat::kMegatron);
  CHECK(format("x\n--- arguments ---\n  num_layers .... 2\n") == ForeignFormat::kMegatron);
  CHECK(format("base_model: x\nsequence_len: 4096\nfsdp_config: {}\n") == ForeignFormat::kAxolotl);
  CHECK(format("model_name_or_path: x\nstage: sft\nper_device_train_batch_size: 1\n") ==
        ForeignFormat::kLlamaFactory);
  CHECK(format("# recipe.py --recipe x\nmodel: {}\nstep_scheduler: {global_batch_size: 8}\n") ==
        ForeignFormat::kAutomodel);
  says("max_seq_len: 2048\nfsdp_config: {}\nmax_duration: 1ep\n",
       "a configuration of Composer or LLM Foundry");
  says("per_device_train_batch_size: 1\noutput_dir: x\n", "arguments of a Hugging Face Trainer");
  says(R"({"per_device_train_batch_size": 1})", "arguments of a Hugging Face Trainer");
  says("pipe_parallel_size: 1\n", "a GPT-NeoX configuration");
  says("apiVersion: v1\nkind: Pod\n", "a Kubernetes manifest");
  CHECK(format("[job]\n[training]\nseq_len = 1\n[parallelism]\n") == ForeignFormat::kTorchTitan);
  CHECK(format(R"({"torchtitan_config": "x"})") == ForeignFormat::kTorchTitan);
  says("# recipe\nimport torch\nfrom nemo.collections import llm\n",
       "a Python program (a recipe of NeMo or Megatron Bridge)");
  says("from torchtitan.config import TrainingConfig\n",
       "a Python program (a configuration of torchtitan)");
  says("import torch\n", "a Python program");
  CHECK(
      refused("per_device_train_batch_size: 1\ndeepspeed: ds/z3.json\n").find("with ds/z3.json;") !=
      std::string::npos);
  CHECK(format("// x\n# y\n{ # z\n \"zero_optimization\": {},}") == ForeignFormat::kDeepSpeed);
  CHECK(refused("smp_plan: 2\n") == "x: this is a plan of smp, which needs no import");
  CHECK(refused("hello\n") ==
        "x: not recognized as JSON, a Megatron command line or accelerate's YAML: give the format "
        "with --from");
}

TEST_CASE("several files are one job: where they disagree, both are named") {
  const JobSource model{"config.json", contents(kFolder + "huggingface/llama2-7b.json")};
  const JobSource v1{"smp.json",
                     R"({"pipeline_parallel_degree": 4, "microbatches": 8,
                         "offload_activations": true, "activation_loading_horizon": 2})"};
  const auto files = import_sources({v1, model}, std::nullopt);
  CHECK(files.front().file == "config.json");  // other files count in its layers
  const JobSpec job = read_job({{"job", imported_job_yaml(files)}});
  CHECK(job.parallel.activation_loading_horizon == 16);  // 2 tasks of 32 / 4 layers
  CHECK(job.parallel.active_microbatches == 6);
  CHECK(job.model.num_layers == 32);

  const JobSource megatron{"run.sh", "--num-layers 24 --hidden-size 4096"};
  CHECK(error_of([&] {
          import_sources({model, megatron}, std::nullopt);
        }) ==
        "run.sh: --num-layers gives model.num_layers: 24, but num_hidden_layers of config.json "
        "gives 32");
  CHECK(error_of([&] { imported_job_yaml(import_sources({megatron}, std::nullopt)); }) ==
        "run.sh: the model has no num_heads, vocab_size: add it, or import the model's config.json "
        "in the same call");
  const JobSource tokenizer{"run.sh",
                            "--num-layers 24 --hidden-size 4096 --num-attention-heads 32 "
                            "--tokenizer-type HuggingFaceTokenizer --tokenizer-model my/own"};
  CHECK(error_of([&] { imported_job_yaml(import_sources({tokenizer}, std::nullopt)); }) ==
        "run.sh: the model has no vocab_size: Megatron takes the size from the tokenizer; add "
        "--vocab-size N");
}

TEST_CASE("hosts and processes turn 'over all ranks' into a degree") {
  const JobSource deepspeed{"ds.json", R"({"zero_optimization": {"stage": 3}})"};
  ImportContext context;
  context.hosts = 4;
  context.processes_per_host = 8;
  const auto files = import_sources({deepspeed}, std::nullopt, context);
  REQUIRE(files.front().find("parallel.sharded_data_parallel_degree") != nullptr);
  CHECK(files.front().find("parallel.sharded_data_parallel_degree")->value == "32");
  CHECK(files.front().find("cluster.hosts")->value == "4");
}

TEST_CASE("hosts and processes stand for torchrun's values that a script does not say") {
  const JobSource script{"run.sh",
                         "torchrun --nnodes $SLURM_NNODES --nproc_per_node $GPUS pretrain.py "
                         "--tensor-model-parallel-size 2\n"};
  CHECK(error_of([&] { import_sources({script}, std::nullopt); }) ==
        "run.sh:1:19: the value of --nnodes is $SLURM_NNODES, which this text does not set: give "
        "--hosts N\n"
        "  torchrun --nnodes $SLURM_NNODES --nproc_per_node $GPUS pretrain.py "
        "--tensor-model-parallel-size 2\n"
        "                    ^\n"
        "run.sh:1:50: the value of --nproc-per-node is $GPUS, which this text does not set: give "
        "--processes-per-host N\n"
        "  torchrun --nnodes $SLURM_NNODES --nproc_per_node $GPUS pretrain.py "
        "--tensor-model-parallel-size 2\n"
        "                                                   ^");
  ImportContext context;
  context.hosts = 4;
  context.processes_per_host = 8;
  const auto files = import_sources({script}, std::nullopt, context);
  CHECK(files.front().find("cluster.hosts")->value == "4");
}

TEST_CASE("a DeepSpeed file's auto sizes follow the model's width, as the Trainer has them") {
  const JobSource model{"config.json", contents(kFolder + "huggingface/llama2-7b.json")};
  const JobSource deepspeed{"ds.json", contents(kFolder + "import/deepspeed-auto.json")};
  const auto files = import_sources({deepspeed, model}, std::nullopt);
  CHECK(files.back().find("parallel.bucket_bytes")->value == "67108864");  // 4096 x 4096 x 4
  CHECK(files.back().find("parallel.param_persistence_threshold")->value == "40960");
}

TEST_CASE(
    "a contradiction of the imported job is told in the words of the file that it comes from") {
  const JobSource deepspeed{
      "d.json", R"({"fp16": {"enabled": true, "initial_scale_power": 0, "min_loss_scale": 4}})"};
  CHECK(error_of([&] {
          imported_job_yaml(import_sources({deepspeed}, ForeignFormat::kDeepSpeed));
        }) == "d.json: fp16.min_loss_scale: min_scale (4) is above init_scale (1)");
}

TEST_CASE("a foreign file's model is found as a job's is, and is no other version of it") {
  const auto imported = [](const std::string& name) {
    return import_sources({{"a.yaml", "base_model: " + name + "\n"}}, ForeignFormat::kAxolotl)
        .front();
  };
  const Imported known = imported("Qwen/Qwen3-30B-A3B-Instruct-2507");
  REQUIRE(known.find("model.name") != nullptr);
  CHECK(known.find("model.name")->value == "qwen3-30b-a3b-2507");
  const Imported other = imported("mistralai/Mistral-7B-Instruct-v0.4");
  CHECK(other.find("model.name") == nullptr);
  REQUIRE(other.warnings.size() == 1);
  CHECK(other.warnings.front() ==
        "a.yaml:1:1: unknown model 'mistralai/Mistral-7B-Instruct-v0.4', did you mean 'mistral-7b' "
        "or "
        "'mistral-7b-v0.2' or 'mistral-7b-v0.3'? smp-plan "
        "models lists all models, and a config.json in the same call gives one too");
}

TEST_CASE("hf_config names a published model's repository where no file has that name") {
  const jobfile::JobSource job = {"runs/x.yaml",
                                  "model: {hf_config: Qwen/Qwen3-8B, num_layers: 8}\n"};
  const JobSpec spec = jobfile::read_job(with_hf_model(job));
  CHECK(spec.name == "x");
  CHECK(spec.model.num_layers == 8);
  CHECK(spec.model.vocab_size == 151936);
}

TEST_CASE("hf_config of a job file gives its model: keys beside it replace what it says") {
  const JobSource job{kFolder + "huggingface/my-job.yaml",
                      "model: {hf_config: llama2-7b.json, num_layers: 8}\n"};
  const JobSpec read = read_job(with_hf_model(job));
  CHECK(read.name == "my-job");
  CHECK(read.model.hidden_size == 4096);
  CHECK(read.model.num_layers == 8);
  CHECK(read.model.ffn_hidden_size == 11008);
  CHECK(with_hf_model({"x.yaml", "model: {num_layers: 8}\n"}).size() == 1);
  CHECK(with_hf_model({"x.yaml", "model: [\n"}).size() == 1);  // read_job says what is wrong
  const std::string missing = error_of([&] {
    with_hf_model({kFolder + "x.yaml", "model: {hf_config: none.json}\n"});
  });
  CHECK(missing == kFolder + "none.json: no such file");
}

TEST_CASE("flags that a script sets in a way that is not read are refused, not dropped") {
  const std::string flags = " --num-layers 2 --hidden-size 8 \"${ARGS[@]}\"\n";
  for (const auto& [set, what] :
       {std::pair{"ARGS=(--bf16 --lr 3e-4)\nARGS[2]=1e-4\n",
                  "ARGS[...]=, which smp does not evaluate"},
        std::pair{"mapfile -t ARGS < flags.txt\n", "mapfile -t ARGS, which smp does not run"},
        std::pair{"read -ra ARGS <<< \"$ALL\"\n", "read -ra ARGS, which smp does not run"},
        std::pair{"ARGS=($(cat flags.txt))\n", "$(cat flags.txt), which smp does not run"},
        std::pair{"A=(--bf16)\nARGS=(\"${A[@]/bf/fp}\")\n",
                  "${A[@]/bf/fp}, which smp does not evaluate"},
        std::pair{"mapfile A < x\nARGS=(\"${A[@]}\")\n", "mapfile A, which smp does not run"}}) {
    const std::string script = set + ("torchrun pretrain_gpt.py" + flags);
    CAPTURE(script);
    const std::string error = error_of([&] { import_sources({{"x.sh", script}}, std::nullopt); });
    CHECK(error.find(std::string("this word may hold flags, but its value is ") + what +
                     ": write the flags instead") != std::string::npos);
  }
  const std::string call =
      "train() { torchrun pretrain_gpt.py --num-layers 2 --hidden-size 8 \"$@\"; }\n"
      "train $(cat flags.txt)\n";
  const std::string of_call = error_of([&] { import_sources({{"x.sh", call}}, std::nullopt); });
  CHECK(
      of_call.starts_with("x.sh:2:7: this word may hold flags, but its value is $(cat flags.txt), "
                          "which smp does not run"));
  const std::string other =
      "A=(--bf16)\ndeclare -n B=A\nB+=(--lr 1e-4)\ntorchrun pretrain_gpt.py "
      "--num-layers 2 \"${A[@]}\"\n";
  const std::string of_name = error_of([&] { import_sources({{"x.sh", other}}, std::nullopt); });
  CHECK(of_name.starts_with(
      "x.sh:2:9: -n makes a name refer to another name, which smp does not support"));
}

TEST_CASE("Megatron's programs of other models are refused by name") {
  const auto error = [](const std::string& program, const std::string& flags) {
    const std::string script = "torchrun " + program + " --num-layers 2 --hidden-size 8" + flags;
    const std::string text = error_of([&] { import_sources({{"x.sh", script}}, std::nullopt); });
    return text.substr(0, text.find('\n'));
  };
  CHECK(error("pretrain_bert.py", "") ==
        "x.sh:1:10: pretrain_bert.py does not train a text decoder, so its flags describe another "
        "model: only pretrain_gpt.py and similar programs are supported");
  CHECK(error("m/pretrain_t5.py", "") ==
        "x.sh:1:10: pretrain_t5.py does not train a text decoder, so its flags describe another "
        "model: import the T5's config.json, and write the other settings into the job file");
  CHECK(error("pretrain_vision_classify.py", "").find("does not train a text decoder") !=
        std::string::npos);
  CHECK(error("pretrain_gpt.py", " --encoder-num-layers 12") ==
        "x.sh:1:57: encoder-num-layers: only for models with an encoder: write num-layers for a "
        "decoder");
  CHECK_NOTHROW(import_sources(
      {{"x.sh", "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 8\n"}}, std::nullopt));
}

TEST_CASE("Megatron's modules are kept for each flag that recomputes them, and [] is none") {
  const auto value = [](const Imported& read, std::string_view path) {
    const ImportedKey* key = read.find(path);
    return key != nullptr ? key->value : "";
  };
  for (const char* flag : {"--recompute-activations", "--recompute-granularity selective"}) {
    const std::string script =
        fmt::format("torchrun pretrain_gpt.py --num-layers 2 {} --recompute-modules mlp\n", flag);
    const Imported read = import_sources({{"x.sh", script}}, std::nullopt).front();
    CHECK(value(read, "parallel.recompute") == "selective");
    CHECK(value(read, "parallel.recompute_modules") == "[mlp]");
  }
  const auto bridge = [&](const std::string& modules) {
    const std::string text = fmt::format(
        "train: {{global_batch_size: 8}}\nmodel: {{recompute_granularity: selective{}}}\n",
        modules);
    const Imported read = import_source({"x.yaml", text}, ForeignFormat::kNemo);
    return value(read, "parallel.recompute") + value(read, "parallel.recompute_modules");
  };
  CHECK(bridge("") == "selective");
  CHECK(bridge(", recompute_modules: [mlp]") == "selective[mlp]");
  CHECK(bridge(", recompute_modules: []") == "none");
}

TEST_CASE("fp8 has the scaling that Automodel and Megatron Bridge default to") {
  const auto scaling = [](const std::string& text, ForeignFormat format) {
    const Imported read = import_source({"x.yaml", text}, format);
    const ImportedKey* key = read.find("training.fp8_recipe");
    return key != nullptr ? key->value : "";
  };
  const auto bridge = [&](const std::string& more) {
    const std::string map = "mixed_precision: {bf16: true, fp8: hybrid" + more + "}\n";
    return scaling("train: {global_batch_size: 8}\n" + map, ForeignFormat::kNemo);
  };
  CHECK(bridge("") == "current");
  CHECK(bridge(", fp8_recipe: delayed") == "delayed");
  const auto automodel = [&](const std::string& enabled) {
    return scaling("step_scheduler: {global_batch_size: 8}\nfp8: {enabled: " + enabled + "}\n",
                   ForeignFormat::kAutomodel);
  };
  CHECK(automodel("true") == "current");
  CHECK(automodel("false").empty());
}

TEST_CASE("mistral has a window where its file says none, and none where it says null") {
  const auto window = [](const std::string& more) {
    const JobSource config{"config.json", R"({"model_type": "mistral")" + more + "}"};
    const Imported read = import_source(config, ForeignFormat::kHuggingFace);
    const ImportedKey* key = read.find("model.sliding_window");
    return key != nullptr ? key->value + " # " + key->origin : "";
  };
  CHECK(window("") == "4096 # sliding_window, default of mistral");
  CHECK(window(R"(, "sliding_window": null)").empty());
  CHECK(window(R"(, "sliding_window": 128)") == "128 # sliding_window");
  CHECK(window(R"(, "max_position_embeddings": 4096)").empty());  // it would hold all of them
}

TEST_CASE("a T5 of transformers 5 that is tied and does not scale is refused") {
  const auto read = [](const std::string& keys) {
    return import_source({"config.json", R"({"model_type": "t5", )" + keys + "}"},
                         ForeignFormat::kHuggingFace);
  };
  const std::string error =
      error_of([&] { read(R"("scale_decoder_outputs": false, "tie_word_embeddings": true)"); });
  CHECK(
      error.starts_with("config.json:1:22: scale_decoder_outputs is false, but tie_word_embeddings "
                        "is true; smp requires them to be equal. transformers 5 writes "
                        "tie_word_embeddings: true for every T5; set it to false for a T5 1.1"));
  const Imported own = read(R"("scale_decoder_outputs": false, "tie_word_embeddings": false)");
  CHECK(own.find("model.tied_embeddings")->value == "false");
  CHECK(own.warnings.empty());
}

TEST_CASE("config.json of transformers 5: local experts of qwen3_moe, and 0 for no window") {
  const auto read = [](const std::string& keys) {
    return import_source({"config.json", "{" + keys + "}"}, ForeignFormat::kHuggingFace);
  };
  const Imported local = read(R"("model_type": "qwen3_moe", "num_local_experts": 64)");
  CHECK(local.find("model.num_experts")->value == "64");
  CHECK(local.find("model.num_experts")->origin == "num_local_experts");
  const std::string both = error_of(
      [&] { read(R"("model_type": "qwen3_moe", "num_local_experts": 64, "num_experts": 8)"); });
  CHECK(both.find("keys disagree: num_experts differs from num_local_experts") !=
        std::string::npos);
  const std::string none = R"("sliding_window": 0, "use_sliding_window": false)";
  CHECK(read(R"("model_type": "qwen2_moe", )" + none).find("model.sliding_window") == nullptr);
  const std::string zero =
      error_of([&] { read(R"("model_type": "mistral", "sliding_window": 0)"); });
  CHECK(zero.find("sliding_window must be a whole number of at least 1, not '0'") !=
        std::string::npos);
  CHECK(read(R"("model_type": "llama", "num_local_experts": 8)").warnings ==
        std::vector<std::string>{
            "config.json:1:25: num_local_experts has no effect: model_type llama has no experts"});
}

TEST_CASE("what a DeepSpeed file leaves out is DeepSpeed's default, unless another file says it") {
  const auto at = [](const std::vector<Imported>& files, std::string_view path) {
    for (const Imported& file : files) {
      if (const ImportedKey* key = file.find(path)) return key->value + " # " + key->origin;
    }
    return std::string();
  };
  constexpr std::string_view kClipping = "training.optimizer.gradient_clipping";
  constexpr std::string_view kMicrobatches = "training.microbatches";
  const JobSource bare{"ds.json", R"({"train_micro_batch_size_per_gpu": 2})"};
  const auto alone = import_sources({bare}, std::nullopt);
  CHECK(at(alone, kClipping) == "0 # no gradient_clipping: DeepSpeed's default");
  CHECK(at(alone, kMicrobatches) == "1 # no gradient_accumulation_steps: DeepSpeed's default");
  const JobSource launcher{"a.yaml",
                           "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 0\n"
                           "  gradient_clipping: 0.5\n  gradient_accumulation_steps: 4\n"};
  const auto both = import_sources({bare, launcher}, std::nullopt);
  CHECK(at(both, kClipping) == "0.5 # deepspeed_config.gradient_clipping");
  CHECK(at(both, kMicrobatches) == "4 # deepspeed_config.gradient_accumulation_steps");
  const JobSource batch{"ds.json",
                        R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2})"};
  CHECK(at(import_sources({batch}, std::nullopt), kMicrobatches).empty());
  const JobSource autos{"ds.json", R"({"train_micro_batch_size_per_gpu": 2,
      "gradient_accumulation_steps": "auto", "gradient_clipping": "auto"})"};
  const auto open = import_sources({autos}, std::nullopt);
  CHECK(at(open, kClipping).empty());
  CHECK(at(open, kMicrobatches).empty());
}

TEST_CASE("a file without text, or in UTF-16, is said to be that") {
  for (const char* text : {"", " \n\t\n"}) {
    CHECK(error_of([&] { recognise({"x", text}); }) == "x: the file is empty");
  }
  CHECK(error_of([] {
          recognise({"x", std::string("\xFF\xFE{\0\"\0", 6)});
        }) ==
        "x: the file contains NUL bytes, as in UTF-16 and binary files: save the text as UTF-8");
}

TEST_CASE("degrees that no mesh of the given ranks has are refused with both numbers") {
  const auto of = [](const std::string& file, const std::string& text, int64_t hosts,
                     int64_t processes) {
    ImportContext context;
    context.hosts = hosts;
    context.processes_per_host = processes;
    return error_of([&] { import_sources({{file, text}}, std::nullopt, context); });
  };
  const std::string one = "the world size 8 (cluster.hosts 1 x cluster.processes_per_host 8)";
  CHECK(of("v2.json", R"({"tensor_parallel_degree": 4, "hybrid_shard_degree": 8})", 1, 8) ==
        "v2.json: hybrid_shard_degree gives a shard degree of 8, which does not divide the 2 "
        "data-parallel ranks of " +
            one);
  CHECK(of("v2.json", R"({"tensor_parallel_degree": 4, "hybrid_shard_degree": 2})", 1, 8) ==
        "no error");
  CHECK(of("mics.json",
           R"({"train_micro_batch_size_per_gpu": 1,
               "zero_optimization": {"stage": 3, "mics_shard_size": 16}})",
           1, 8) ==
        "mics.json: zero_optimization.mics_shard_size gives a shard degree of 16, which does not "
        "divide the 8 data-parallel ranks of " +
            one);
  const std::string accelerate =
      "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 16\n"
      "parallelism_config: {parallelism_config_tp_size: 3}\n";
  CHECK(error_of([&] {
          import_sources({{"a.yaml", accelerate}}, std::nullopt);
        }) ==
        "a.yaml: pipeline x tensor x context degree = 1 x 3 x 1 = 3 does not divide the world size "
        "16 (cluster.hosts 2 x cluster.processes_per_host 8)");
}

TEST_CASE("a name that := sets inside a line of Python is not known") {
  const std::string script =
      "count = 2\nprint(count := 4)\n"
      "job = PyTorch(instance_type=\"ml.p4d.24xlarge\", instance_count=count,\n"
      "              distribution={\"mpi\": {\"enabled\": True}, \"smdistributed\": "
      "{\"modelparallel\": {\"enabled\": True, \"parameters\": {\"microbatches\": 1}}}})\n";
  const std::string error = error_of([&] { import_sources({{"x.py", script}}, std::nullopt); });
  CHECK(error.substr(0, error.find('\n')) ==
        "x.py:2:7: instance_count: ':=' on line 2 sets the value, which smp does not evaluate: "
        "write the "
        "value instead");
}

TEST_CASE("--recipe gives the values that a file of overrides leaves out") {
  const JobSource overrides{"o.yaml",
                            "train: {micro_batch_size: 2}\nmodel: {context_parallel_size: 1}\n"};
  ImportContext context;
  context.recipe = "llama3_70b_pretrain_config";
  context.hosts = 4;
  context.processes_per_host = 8;
  const auto files = import_sources({overrides}, std::nullopt, context);
  const auto at = [&](std::string_view path) { return files.front().find(path)->value; };
  CHECK(at("training.micro_batch") == "2");
  CHECK(at("training.global_batch") == "512");
  CHECK(at("parallel.tensor_parallel_degree") == "4");
  CHECK(at("parallel.context_parallel_degree") == "1");
  CHECK(at("parallel.sharded_data_parallel_degree") == "2");
  CHECK(at("model.num_layers") == "80");
  context.recipe = "llama3_8b";  // one host, as NeMo proposes
  CHECK(import_sources({overrides}, std::nullopt, context).front().find("cluster.hosts")->value ==
        "4");
  for (const char* own : {"recipe: llama3_70b\ntrain: {micro_batch_size: 1}\n",
                          "nemo llm pretrain --factory llama3_70b --yes\n"}) {
    const std::string two = error_of([&] {
      import_sources({{"o.yaml", own}}, std::nullopt, context);
    });
    CHECK(two.find("the recipe is llama3_70b here, but --recipe gives llama3_8b: remove one") !=
          std::string::npos);
  }
  context.recipe = "llama3_7b";
  CHECK(error_of([&] { import_sources({overrides}, std::nullopt, context); })
            .starts_with("o.yaml:1:1: unknown recipe 'llama3_7b', did you mean 'llama2_7b'? Known "
                         "are llama2_7b_pretrain_config, "));
}

TEST_CASE("of a switch in several sections one is enough, and mixed_precision is last") {
  const auto read = [](const std::string& more) {
    const std::string text = "train: {global_batch_size: 8}\nmodel: {bf16: true}\n" + more;
    return import_source({"x.yaml", text}, ForeignFormat::kNemo);
  };
  const auto precision = [&](const std::string& more) {
    return read(more).find("training.precision")->value;
  };
  CHECK(precision("optimizer: {bf16: false}\n") == "bf16");
  CHECK(precision("mixed_precision: {bf16: false, fp16: true}\n") == "fp16");
  CHECK(precision("mixed_precision: bf16_with_mxfp8_mixed\n") == "fp8");
  CHECK(read("ddp: {use_distributed_optimizer: false}\noptimizer: {use_distributed_optimizer: "
             "true}\n")
            .find("parallel.sharding")
            ->value == "optimizer_state");
}

TEST_CASE("sizes beside a config.json or a name have no effect, which a warning says") {
  const JobSource config{"config.json", contents(kFolder + "huggingface/llama2-7b.json")};
  const JobSource nemo{"n.yaml",
                       "train: {global_batch_size: 8}\nmodel: {num_layers: 32, hidden_size: 4096, "
                       "ffn_hidden_size: 11008, normalization: RMSNorm}\n"};
  const auto files = import_sources({config, nemo}, std::nullopt);
  CHECK(
      files.back().warnings ==
      std::vector<std::string>{"n.yaml: the model is given by a config.json of the same call, so "
                               "these have no effect: model.ffn_hidden_size, model.normalization"});
  CHECK(read_job({{"a cluster", "cluster: {has_bf16: true}\n"}, {"job", imported_job_yaml(files)}})
            .model.num_layers == 32);
  const std::string named =
      "trainer: {num_nodes: 1}\nmodel: {config: {_target_: x.Llama3Config8B, rotary_base: 1}}\n";
  CHECK(
      import_source({"n.yaml", named}, ForeignFormat::kNemo).warnings.front() ==
      "n.yaml: the model is given by its name, so these have no effect: model.config.rotary_base");
}

TEST_CASE("a model that a file gives by name is known by its repository, its class or its folder") {
  const auto model = [](const std::string& name) {
    const std::string text = "trainer: {num_nodes: 1}\nmodel: {config: {_target_: " + name + "}}\n";
    const Imported read = import_source({kFolder + "x.yaml", text}, ForeignFormat::kNemo);
    const ImportedKey* layers = read.find("model.num_layers");
    return layers != nullptr ? layers->value : "no";
  };
  CHECK(model("nemo.Llama3Config8B") == "32");
  CHECK(model("nemo.Llama3ModelProvider70B") == "80");
  CHECK(model("nemo.MixtralConfig8x7B") == "32");
  CHECK(model("nemo.SomeConfig") == "no");
  const std::string text =
      "trainer: {num_nodes: 1}\nmodel: {config: {_target_: nemo.AquilaConfig9B}}\n";
  const Imported unknown = import_source({"x.yaml", text}, ForeignFormat::kNemo);
  CHECK(unknown.warnings.front() ==
        "x.yaml:2:28: unknown model 'AquilaConfig9B'. smp-plan models lists all models, and a "
        "config.json in the same call gives one too");
}

TEST_CASE("a fine-tuning file gives its DeepSpeed file and the folder of its model") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("smp-fine-tuning-{}", getpid());
  std::filesystem::create_directories(folder / "examples/train");
  std::filesystem::create_directories(folder / "model");
  std::filesystem::copy_file(kFolder + "huggingface/llama2-7b.json", folder / "model/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::ofstream(folder / "examples/z3.json")
      << R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
             "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3,
             "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": "auto"}})";
  const auto job = [&](const std::string& name, const std::string& text) {
    const JobSource source{(folder / "examples/train" / name).string(), text};
    ImportContext context;
    context.hosts = 1;
    context.processes_per_host = 8;
    const auto files = import_sources({source}, std::nullopt, context);
    CHECK(files.size() == 2);
    return read_job(
        {{"a cluster", "cluster: {has_bf16: true}\n"}, {"job", imported_job_yaml(files)}});
  };
  const JobSpec factory =
      job("a.yaml", "model_name_or_path: " + (folder / "model").string() +
                        "\nstage: sft\nfinetuning_type: full\nbf16: true\n"
                        "per_device_train_batch_size: 2\ndeepspeed: examples/z3.json\n");
  CHECK(factory.model.num_layers == 32);
  CHECK(factory.training.micro_batch == 2);
  CHECK(factory.parallel.sharding == Sharding::kParameters);
  CHECK(factory.parallel.sharded_data_parallel_degree == 8);
  CHECK(factory.parallel.offload_optimizer == true);
  CHECK(factory.parallel.bucket_bytes == 4096 * 4096 * 4);
  const JobSpec axolotl = job("b.yaml",
                              "base_model: ../../model\nsequence_len: 1024\nmicro_batch_size: 4\n"
                              "bf16: true\ndeepspeed: examples/z3.json\n");
  CHECK(axolotl.model.num_layers == 32);
  CHECK(axolotl.training.micro_batch == 4);
  CHECK(axolotl.parallel.sharding == Sharding::kParameters);
  std::filesystem::remove_all(folder);
}

TEST_CASE("fine-tuning over a host, or over given degrees, is checked against the ranks") {
  ImportContext context;
  context.hosts = 2;
  context.processes_per_host = 8;
  const auto of = [&](const std::string& text) {
    return import_sources({{"x.yaml", text}}, std::nullopt, context);
  };
  const auto degree = [&](const std::string& text) {
    return of(text).front().find("parallel.sharded_data_parallel_degree")->value;
  };
  CHECK(degree("model_name_or_path: x\nstage: sft\nfsdp: hybrid_shard\n") == "8");
  CHECK(degree("base_model: x\ndatasets: []\nfsdp: [hybrid_shard]\n") == "8");
  CHECK(degree("step_scheduler: {global_batch_size: 32}\ndistributed: {dp_replicate_size: 2}\n") ==
        "8");
  CHECK(error_of([&] { of("base_model: x\ndatasets: []\ndp_shard_size: 4\n"); })
            .starts_with("x.yaml:3:1: dp_replicate_size x dp_shard_size x tensor_parallel_size x "
                         "context_parallel_size = 1 x 4 x 1 x 1 = 4, but there are 16 ranks"));
  CHECK(
      error_of([&] { of("step_scheduler: {global_batch_size: 32}\ndistributed: {dp_size: 4}\n"); })
          .starts_with("x.yaml:2:15: dp_size 4 with dp_replicate_size 1 and tensor x pipeline x "
                       "context size 1 do not form the 16 ranks"));
  const std::string titan =
      "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n";
  CHECK(
      error_of([&] {
        import_sources({{"x.toml", titan}}, std::nullopt, context);
      })
          .starts_with("x.toml:3:1: replicate x shard x tensor x pipeline x context degree = 2 x 4 "
                       "x 1 x 1 x 1 = 8, but there are 16 ranks"));
  context.hosts.reset();
  context.processes_per_host.reset();
  const auto log = [&] {
    const std::string text = "--- arguments ---\n  world_size ... 16\n";
    return import_sources({{"x.log", text}}, std::nullopt, context);
  };
  context.cluster_processes_per_host = 8;
  CHECK(log().front().find("cluster.hosts")->value == "2");
  context.hosts = 3;
  CHECK(error_of(log).starts_with(
      "x.log:2:18: world_size: 16 ranks are not a multiple of the given 3 hosts"));
}

TEST_CASE("docs/interchange.md ends with the tables that the readers use") {
  const std::string page = contents(SMP_SOURCE_DIR "/docs/interchange.md");
  const std::string marker = "<!-- from here on: made by the tables of keys -->\n";
  const size_t at = page.find(marker);
  REQUIRE(at != std::string::npos);
  const std::string tables = import_reference_markdown();
  if (std::getenv("SMP_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(SMP_SOURCE_DIR "/docs/interchange.md")
        << page.substr(0, at + marker.size()) << tables;
  }
  CHECK(page.substr(at + marker.size()) == tables);
}
