#include "smp/plan/jobfile/job_format.h"

#include <doctest/doctest.h>

#include <random>
#include <sstream>

#include "plan/job_texts.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/json.h"

namespace smp {
using namespace testing;

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
                          "  norm_placement: before\n"
                          "  position_embedding: learned\n"
                          "  qkv_bias: true\n"
                          "  attention_output_bias: true\n"
                          "  mlp_bias: true\n"
                          "  head_bias: false\n"
                          "  qk_norm: false\n"
                          "  attention_sinks: false\n"
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
                          "  vision_parameters: 0\n"
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
                        "  framework: smp\n"
                        "  data_collectives: auto\n"
                        "  delayed_parameter_initialization: auto\n"
                        "  prescaled_batch: true\n"
                        "  bucket_bytes: auto\n"
                        "  shard_bucket_bytes: auto\n"
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
    JobSpec job = jobfile::read_job({{"job.yaml", kSmall}});
    for (uint64_t k = 1 + random() % 6; k > 0; --k) {
      job.training.data_path += pieces[random() % pieces.size()];
    }
    job.training.data_suffixes = {job.training.data_path, "." + job.training.data_path};
    job.cluster.accelerator = pieces[random() % pieces.size()];
    job.cluster.inter_host_latency_s = std::ldexp(static_cast<double>(random()), -80);
    job.cluster.fp32_flops_per_s = static_cast<double>(random());
    job.training.seed = random();
    const std::string written = jobfile::write_job_yaml(job);
    CAPTURE(written);
    const JobSpec back = jobfile::read_job({{"job.yaml", written}});
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
      const JobSpec job = jobfile::read_job({{"job.yaml", text}});
      ++good;
      // What was accepted is written and read back as the same job.
      const std::string written = jobfile::write_job_yaml(job);
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
      jobfile::read_job({{"job.yaml", kEverything.substr(0, length)}});
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()).starts_with("job.yaml:"));
    }
  }
}

}  // namespace smp
