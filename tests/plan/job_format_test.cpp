#include "smp/plan/job_format.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "smp/plan/errors.h"
#include "smp/plan/job_names.h"
#include "smp/plan/job_reader.h"

namespace smp {
namespace {

const std::string kEverything = R"(name: everything
model:
  name: "Llama, small: 1"
  hf_config: config.json
  family: llama
  stack: decoder
  mlp: geglu
  gelu: erf
  norm: layernorm
  position_embedding: rotary
  qkv_bias: true
  attention_output_bias: true
  mlp_bias: true
  head_bias: true
  qk_norm: true
  parallel_residual: true
  shared_norm: true
  num_layers: 5
  hidden_size: 96
  num_heads: 6
  num_kv_heads: 2
  head_dim: 20
  ffn_hidden_size: 200
  vocab_size: 1009
  vocab_multiple_of: 128
  max_positions: 4096
  tied_embeddings: true
  norm_epsilon: 1e-06
  rope_theta: 500000
  rotary_dim: 0
  rope_scaling: llama3
  rope_scaling_factor: 16
  rope_low_freq_factor: 2
  rope_high_freq_factor: 8
  rope_original_positions: 4096
  sliding_window: 512
  initializer_range: 0.01
  attention_dropout: 0.1
  hidden_dropout: 0.2
  num_experts: 8
  experts_per_token: 2
  expert_ffn_hidden_size: 50
  shared_expert_ffn_hidden_size: 60
  first_dense_layers: 1
  moe_layer_period: 2
  num_mtp_layers: 1
  kv_lora_rank: 32
  q_lora_rank: 48
  qk_head_dim: 16
  qk_rope_head_dim: 8
  v_head_dim: 12
cluster:
  name: p4d.24xlarge
  hosts: 2
  processes_per_host: 8
  device: cuda
  accelerator: A100-SXM4-40GB
  memory_per_process: 42949672960
  reserved_memory: 1073741824
  host_memory: 1236950581248
  has_bf16: true
  has_fp16: true
  fp32_flops_per_s: 19500000000000
  half_flops_per_s: 312000000000000
  fp8_flops_per_s: 624000000000000
  matmul_efficiency: 0.6
  multiprocessors: 108
  kernel_launch_s: 5e-06
  memory_bytes_per_s: 1555000000000
  host_link_bytes_per_s: 12000000000
  intra_host_bytes_per_s: 3e+17
  intra_host_latency_s: 3e-06
  inter_host_bytes_per_s: 6250000000
  inter_host_latency_s: 2e-05
  intra_host_points: [{ranks: 8, bytes: 1048576, seconds: 0.0001}, {ranks: 8, bytes: 2097152, seconds: 0.00015}]
  inter_host_points: [{ranks: 16, bytes: 1024, seconds: 2.5e-05, op: reduce_scatter}]
  collective_multiprocessors: 24
  price_per_host_hour: 32.77
  memory_error: 0.05
  time_error: 0.1
training:
  sequence_length: 2048
  micro_batch: 2
  microbatches: 8
  global_batch: 64
  max_tokens_per_batch: 4000000
  batch_ramp_start: 16
  batch_ramp_increment: 16
  precision: bf16
  attention: unfused
  accumulate_gradients_in_fp32: true
  fused_loss: true
  fp8_parameters: false
  compiled: true
  deterministic: true
  fused_optimizer: true
  steps: 100
  seed: 18446744073709551615
  init_from: /models/gpt2
  optimizer:
    kind: adamw
    schedule: wsd
    learning_rate: 0.0001
    min_learning_rate: 0
    warmup_steps: 10
    decay_steps: 20
    beta1: 0.8
    beta2: 0.99
    epsilon: 1e-10
    weight_decay: 0.01
    gradient_clipping: 0.5
  data:
    path: "/data/my text"
    suffixes: [.py, "a b", "true"]
  checkpoint:
    every_steps: 50
    every_minutes: 12.5
    keep: 3
  evaluation:
    every_steps: 50
    samples: 128
    pad_last_batch: true
parallel:
  pipeline_parallel_degree: 2
  tensor_parallel_degree: 2
  sharded_data_parallel_degree: 4
  context_parallel_degree: 1
  expert_parallel_degree: 4
  expert_tensor_degree: 1
  sequence_parallel: true
  shard_optimizer_state: true
  sharding: optimizer_state
  pipeline: virtual
  virtual_pipeline_degree: 2
  placement_strategy: TPD
  active_microbatches: 3
  partition: [3, 2]
  activation_checkpointing: true
  recompute: full
  recompute_layers: 2
  activation_checkpointing_strategy: group_3
  offload_activations: false
  partition_activations: false
  activation_loading_horizon: 3
  offload_optimizer: true
  offload_parameters: false
  prefetch_layers: 2
  max_live_parameters: 3000000
  param_persistence_threshold: 100000
  forbid: ["tensor_parallel_degree=8", "pipeline=simple|zb_v"]
  profile: megatron
  data_collectives: smddp
  delayed_parameter_initialization: true
  prescaled_batch: true
  bucket_bytes: 1000000
  shard_bucket_bytes: 500000
  tensor_parallel:
    attention: true
    mlp: true
    embedding: false
)";

// Keys that only an encoder with a decoder has.
const std::string kBoth =
    "model:\n  stack: encoder_decoder\n  num_layers: 4\n  decoder_layers: 2\n"
    "  hidden_size: 128\n  num_heads: 4\n  vocab_size: 256\n";

// Keys that only SGD and fp16 have, as they are written.
const std::string kFp16Sgd =
    "    momentum: 0.9\n    nesterov: false\n    weight_decay: 0\n    gradient_clipping: 1\n"
    "  loss_scale:\n    dynamic: true\n    init_scale: 65536\n    scale_factor: 2\n"
    "    scale_window: 1000\n    min_scale: 1\n    delayed_shift: 1\n"
    "    raise_error_at_min_scale: true\n";

std::string rewritten(const std::string& text, int indent = 0) {
  return write_job_yaml(read_job({{"job.yaml", text}}), indent);
}

const std::string kSmall =
    "model:\n  num_layers: 4\n  hidden_size: 128\n  num_heads: 4\n  vocab_size: 256\n";

}  // namespace

TEST_CASE("a job with every key given is written as it was read") {
  CHECK(rewritten(kEverything) == kEverything);
}

TEST_CASE("a job with few keys is written with its defaults, and auto for what is open") {
  const std::string written = rewritten(kSmall);
  CHECK(rewritten(written) == written);
  CHECK(
      written.starts_with("name: job\n"
                          "model:\n"
                          "  family: gpt2\n"
                          "  stack: decoder\n"
                          "  mlp: gelu\n"
                          "  gelu: tanh\n"
                          "  norm: layernorm\n"
                          "  position_embedding: learned\n"
                          "  qkv_bias: true\n"
                          "  attention_output_bias: true\n"
                          "  mlp_bias: true\n"
                          "  head_bias: false\n"
                          "  qk_norm: false\n"
                          "  parallel_residual: false\n"
                          "  shared_norm: false\n"
                          "  num_layers: 4\n"
                          "  hidden_size: 128\n"
                          "  num_heads: 4\n"
                          "  num_kv_heads: 4\n"
                          "  head_dim: 32\n"
                          "  ffn_hidden_size: 512\n"
                          "  vocab_size: 256\n"
                          "  vocab_multiple_of: 1\n"
                          "  max_positions: 1024\n"
                          "  tied_embeddings: true\n"
                          "  norm_epsilon: 1e-05\n"
                          "  sliding_window: 0\n"
                          "  initializer_range: 0.02\n"
                          "  attention_dropout: 0\n"
                          "  hidden_dropout: 0\n"
                          "  num_experts: 0\n"
                          "  num_mtp_layers: 0\n"
                          "  kv_lora_rank: 0\n"
                          "cluster:\n"
                          "  hosts: 1\n"));
  CHECK(
      written.ends_with("parallel:\n"
                        "  pipeline_parallel_degree: auto\n"
                        "  tensor_parallel_degree: auto\n"
                        "  sharded_data_parallel_degree: auto\n"
                        "  context_parallel_degree: auto\n"
                        "  sequence_parallel: auto\n"
                        "  shard_optimizer_state: auto\n"
                        "  sharding: auto\n"
                        "  pipeline: auto\n"
                        "  virtual_pipeline_degree: auto\n"
                        "  placement_strategy: cluster\n"
                        "  active_microbatches: auto\n"
                        "  partition: auto\n"
                        "  activation_checkpointing: auto\n"
                        "  recompute: auto\n"
                        "  recompute_layers: auto\n"
                        "  activation_checkpointing_strategy: each\n"
                        "  offload_activations: auto\n"
                        "  partition_activations: false\n"
                        "  activation_loading_horizon: 2\n"
                        "  offload_optimizer: auto\n"
                        "  offload_parameters: auto\n"
                        "  prefetch_layers: 1\n"
                        "  max_live_parameters: 0\n"
                        "  param_persistence_threshold: 0\n"
                        "  forbid: []\n"
                        "  profile: auto\n"
                        "  data_collectives: auto\n"
                        "  delayed_parameter_initialization: auto\n"
                        "  prescaled_batch: true\n"
                        "  bucket_bytes: 26214400\n"
                        "  shard_bucket_bytes: 262144\n"
                        "  tensor_parallel:\n"
                        "    attention: true\n"
                        "    mlp: true\n"
                        "    embedding: true\n"));
}

TEST_CASE("an indented job has each line indented") {
  std::istringstream lines(rewritten(kEverything, 4));
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(line.starts_with("    "));
    all += line.substr(4) + "\n";
  }
  CHECK(all == kEverything);
}

TEST_CASE("any text and any number come back from a written job") {
  std::mt19937_64 random(20261120);
  const std::vector<std::string> pieces = {
      "a", "Z", "0", "-", ".", ":", " ",  "#", "'", "\"", "\\", "[",  "{",  "&",    "*",
      "!", "|", "%", "@", ",", "é", "字", "~", "?", "no", "/",  ": ", " #", "null", "\u00a0"};
  for (int i = 0; i < 500; ++i) {
    JobSpec job = read_job({{"job.yaml", kSmall}});
    for (uint64_t k = 1 + random() % 6; k > 0; --k) {
      job.training.data_path += pieces[random() % pieces.size()];
    }
    job.training.data_suffixes = {job.training.data_path, "." + job.training.data_path};
    job.cluster.accelerator = pieces[random() % pieces.size()];
    job.cluster.inter_host_latency_s = std::ldexp(static_cast<double>(random()), -80);
    job.cluster.fp32_flops_per_s = static_cast<double>(random());
    job.training.seed = random();
    const std::string written = write_job_yaml(job);
    CAPTURE(written);
    const JobSpec back = read_job({{"job.yaml", written}});
    CHECK(back.training.data_path == job.training.data_path);
    CHECK(back.training.data_suffixes == job.training.data_suffixes);
    CHECK(back.cluster.accelerator == job.cluster.accelerator);
    CHECK(back.cluster.inter_host_latency_s == job.cluster.inter_host_latency_s);
    CHECK(back.cluster.fp32_flops_per_s == job.cluster.fp32_flops_per_s);
    CHECK(back.training.seed == job.training.seed);
  }
}

TEST_CASE("no change to a job file makes the reader do anything but read or explain") {
  std::mt19937_64 random(3);
  const std::string alphabet = " \n\t\r:-[]{}#&*!|>'\"%@`,?0123456789aeK.\\<~\x01\xC3\xA9\xFF";
  int good = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = i % 2 == 0 ? kEverything : kSmall;
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0: text[at] = c; break;
        case 1: text.insert(at, 1 + random() % 3, c); break;
        case 2: text.erase(at, 1 + random() % 20); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
      if (text.empty()) text.push_back('a');
    }
    try {
      const JobSpec job = read_job({{"job.yaml", text}});
      ++good;
      // What was accepted is written and read back as the same job.
      const std::string written = write_job_yaml(job);
      CHECK(rewritten(written) == written);
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()).starts_with("job.yaml:"));
    }
  }
  CHECK(good > 30);
}

TEST_CASE("every beginning of a job file is read or explained") {
  for (size_t length = 0; length < kEverything.size(); length += 3) {
    try {
      read_job({{"job.yaml", kEverything.substr(0, length)}});
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()).starts_with("job.yaml:"));
    }
  }
}

TEST_CASE("the schema names every key that is written, and no other") {
  const auto schema = nlohmann::json::parse(job_schema());
  CHECK(schema["$schema"] == "http://json-schema.org/draft-07/schema#");
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["required"] == nlohmann::json{"model"});

  std::string names;  // as the lines of a written job begin
  const auto walk = [&](const auto& self, const nlohmann::json& object,
                        std::string margin) -> void {
    CHECK(object["additionalProperties"] == false);
    for (const auto& [key, value] : object["properties"].items()) {
      CHECK(value.contains("description"));
      names += margin + key + "\n";
      if (value.contains("properties")) self(self, value, margin + "  ");
    }
  };
  walk(walk, schema, "");
  const std::string list = rewritten(
      "model: {input: {channels: 1, height: 2, width: 2}, "
      "layers: [flatten, {type: linear, out: 3}, relu, {type: linear, out: 2}]}\n");
  std::istringstream lines(kEverything + "  decoder_layers: 2\n  partition_method: auto\n" +
                           kFp16Sgd + list);
  std::set<std::string> written;
  for (std::string line; std::getline(lines, line);) {
    written.insert(line.substr(0, line.find(':')));
  }
  std::set<std::string> known;
  std::istringstream all(names);
  for (std::string line; std::getline(all, line);) known.insert(line);
  CHECK(written == known);
  CHECK(rewritten(kBoth).find("\n  decoder_layers: 2\n") != std::string::npos);
  const std::string job =
      rewritten(kSmall + "training: {precision: fp16, optimizer: {kind: sgd}}\n");
  CHECK(job.find(kFp16Sgd) != std::string::npos);
  CHECK(job.find("beta1") == std::string::npos);
  CHECK(rewritten(kSmall).find("loss_scale") == std::string::npos);
  const std::string by_type = "\n  partition_method: \"type:gpt2_block\"\n";
  CHECK(rewritten(kSmall + "parallel:" + by_type).find(by_type) != std::string::npos);
  CHECK(rewritten(kSmall).find("partition_method") == std::string::npos);

  const auto& model = schema["properties"]["model"];
  CHECK(model["anyOf"][0]["required"] == nlohmann::json{"layers"});
  CHECK(model["anyOf"][1]["required"] ==
        nlohmann::json{"num_layers", "hidden_size", "num_heads", "vocab_size"});
  CHECK(model["properties"]["num_layers"]["type"] == "integer");
  CHECK(model["properties"]["num_layers"]["minimum"] == 1);
  CHECK(model["properties"]["family"]["enum"] == nlohmann::json{"gpt2", "llama", "transformer"});
  CHECK(model["properties"]["family"]["default"] == "gpt2");
  const auto& sharding = schema["properties"]["parallel"]["properties"]["sharding"];
  CHECK(sharding["anyOf"][0]["enum"].size() == 4);
  CHECK(sharding["anyOf"][1]["const"] == "auto");
  CHECK(sharding["default"] == "auto");
}

TEST_CASE("docs/job-file.md is what the table of keys says") {
  const std::string path = std::string(SMP_SOURCE_DIR) + "/docs/job-file.md";
  std::ifstream file(path);
  std::stringstream committed;
  committed << file.rdbuf();
  const std::string generated = job_reference_markdown();
  if (committed.str() != generated) {
    std::ofstream("job-file.md") << generated;
    MESSAGE("the page as it should be: job-file.md in the folder that this test ran in");
  }
  CHECK(committed.str() == generated);
}

TEST_CASE("choices have the names that job files use") {
  CHECK(name_of(ModelFamily::kLlama) == "llama");
  CHECK(name_of(DeviceKind::kCuda) == "cuda");
  CHECK(name_of(Precision::kFp16) == "fp16");
  CHECK(name_of(Sharding::kOptimizerState) == "optimizer_state");
  CHECK(name_of(PipelineKind::kInterleaved) == "interleaved");
}

}  // namespace smp
