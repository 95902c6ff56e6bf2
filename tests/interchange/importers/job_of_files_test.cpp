#include "smp/interchange/importers/job_of_files.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::importers;

namespace {

jobfile::JobSource golden_file(const std::string& name) {
  return jobfile::load_job_source(std::string(SMP_SOURCE_DIR "/tests/golden/interchange/") + name);
}

AnyFiles any(std::vector<jobfile::JobSource> sources, const std::string& cluster = "") {
  AnyFiles files;
  files.sources = std::move(sources);
  files.cluster = cluster;
  return files;
}

std::string complaint(const AnyFiles& files) {
  try {
    job_of_files(files);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

const jobfile::JobSource kOwn{"my.yaml",
                              "model: {num_layers: 2, hidden_size: 64, num_heads: 4, vocab_size: "
                              "256}\ncluster: {processes_per_host: 4}\n"};

}  // namespace

TEST_CASE("job_of_files imports foreign files onto the named cluster") {
  AnyFiles files = any({golden_file("huggingface/llama2-7b.json"),
                        {"ds.json", R"({"zero_optimization": {"stage": 3}})"}},
                       "p4d.24xlarge");
  const JobOfFiles found = job_of_files(files);
  CHECK(found.job.name == "llama2-7b");
  CHECK(found.job.model.num_layers == 32);
  CHECK(found.job.cluster.processes_per_host == 8);
  CHECK(found.job.parallel.sharded_data_parallel_degree == 8);  // "all ranks" of the cluster
  files.hosts = 4;
  CHECK(job_of_files(files).job.parallel.sharded_data_parallel_degree == 32);
  files.processes_per_host = 4;
  CHECK(job_of_files(files).job.parallel.sharded_data_parallel_degree == 16);
}

TEST_CASE("job_of_files keeps the ranks that a file gives, whatever the cluster has") {
  const AnyFiles files =
      any({{"run.sh",
            "torchrun --nnodes 2 --nproc-per-node 4 pretrain_gpt.py --num-layers "
            "4 --hidden-size 64 --num-attention-heads 4 --vocab-size 256 "
            "--max-position-embeddings 64 --seq-length 64 --frobnicate 1\n"}},
          "dgx-h100");
  const JobOfFiles found = job_of_files(files);
  CHECK(found.job.name == "run");
  CHECK(found.job.cluster.hosts == 2);
  CHECK(found.job.cluster.processes_per_host == 4);
  REQUIRE(found.warnings.size() == 1);
  CHECK(found.warnings.front().ends_with("unknown flag '--frobnicate'"));
}

TEST_CASE("job_of_files reads job files as read_job does, and lets them complete foreign ones") {
  AnyFiles own = any({kOwn}, "cpu-4");
  own.hosts = 2;
  CHECK(job_of_files(own).job.cluster.hosts == 2);
  CHECK(job_of_files(any({kOwn})).job.cluster.processes_per_host == 4);
  own.processes_per_host = 2;
  CHECK(job_of_files(own).job.cluster.processes_per_host == 2);
  const JobOfFiles both =
      job_of_files(any({{"ds.json", R"({"train_micro_batch_size_per_gpu": 2})"}, kOwn}));
  CHECK(both.job.model.num_layers == 2);
  CHECK(both.job.training.micro_batch == 2);
  CHECK(complaint(any({{"x.yaml", "modle: {}\n"}})).starts_with("x.yaml:1:1: unknown key 'modle'"));
  CHECK(complaint(any({{"x.yaml", "{model: {num_layer: 1}}\n"}}))
            .starts_with("x.yaml:1:2: model needs hidden_size"));
}

TEST_CASE("job_of_files says what foreign files lack, and refuses what no importer reads") {
  CHECK(complaint(any({{"ds.json", R"({"zero_optimization": {"stage": 3}})"}}, "dgx-h100")) ==
        "ds.json: the file gives no sizes of a model: give the model's config.json too, as in "
        "--with config.json");
  CHECK(complaint(any({{"a.yaml",
                        "base_model: mistralai/Mistral-7B-Instruct-v0.4\n"
                        "micro_batch_size: 1\n"}},
                      "dgx-h100")) ==
        "a.yaml:1:1: unknown model 'mistralai/Mistral-7B-Instruct-v0.4', did you mean 'mistral-7b' "
        "or "
        "'mistral-7b-v0.2' or 'mistral-7b-v0.3'? smp-plan "
        "models lists all models, and a config.json in the same call gives one too");
  const jobfile::JobSource config = golden_file("huggingface/llama2-7b.json");
  CHECK(complaint(any({config})) == config.path +
                                        ": the file does not name the accelerators: give "
                                        "--cluster NAME, as in --cluster dgx-h100");
  CHECK(complaint(any({{"n.yaml", "pipe_parallel_size: 1\n"}}))
            .starts_with("n.yaml: this is a GPT-NeoX configuration, which smp does not import"));
  CHECK(complaint(any({{"x.json", "{\"train_batch_size\": 4,"}})).starts_with("x.json:1:"));
  AnyFiles forced = any({kOwn});
  forced.format = ForeignFormat::kAccelerate;
  CHECK(complaint(forced).starts_with("my.yaml:1:1: unknown key 'model' of an accelerate"));
}

TEST_CASE("a foreign job has nothing that its file does not ask for: a planner would offload it") {
  const auto parallel = [](std::vector<jobfile::JobSource> sources) {
    AnyFiles files = any(std::move(sources), "dgx-h100");
    files.hosts = 2;
    return job_of_files(files).job.parallel;
  };
  const ParallelSpec moe = parallel({{"a.yaml",
                                      "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 4096\n"
                                      "micro_batch_size: 1\nfsdp_version: 2\n"}});
  CHECK(moe.expert_parallel_degree == 1);
  CHECK(moe.expert_tensor_degree == 1);
  CHECK(moe.context_parallel_degree == 1);
  CHECK(moe.offload_optimizer == false);
  CHECK(moe.offload_parameters == false);
  CHECK(moe.offload_activations == false);
  const std::string megatron =
      "pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 256 "
      "--max-position-embeddings 64 --seq-length 64 --num-experts 8 --bf16 "
      "--tensor-model-parallel-size 2 ";
  CHECK(parallel({{"m.sh", megatron}}).expert_parallel_degree == 1);
  CHECK(parallel({{"m.sh", megatron}}).expert_tensor_degree == 2);
  CHECK(parallel({{"m.sh", megatron}}).offload_optimizer == false);
  CHECK(parallel({{"m.sh", megatron + "--optimizer-cpu-offload"}}).offload_optimizer == true);
  // Rings, exchanged heads, and heads exchanged at each place of a ring.
  const auto exchange = [&](const std::string& flags, int ranks = 4) {
    const std::string context = "--context-parallel-size " + std::to_string(ranks) + " ";
    return parallel({{"m.sh", megatron + context + flags}}).context_exchange_degree;
  };
  CHECK_FALSE(exchange("").has_value());
  CHECK(exchange("--cp-comm-type p2p") == 1);
  CHECK(exchange("--cp-comm-type a2a", 2) == 2);
  CHECK(exchange("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2") == 2);
  CHECK_THROWS_WITH_AS(exchange("--cp-comm-type a2a+p2p"),
                       doctest::Contains("needs --hierarchical-context-parallel-sizes with two"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(exchange("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4"),
                       doctest::Contains("whose product is --context-parallel-size (4)"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(exchange("--cp-comm-type allgather"),
                       doctest::Contains("expected p2p, a2a or a2a+p2p for all layers"),
                       ConfigError);
  // A DeepSpeed file is silent about its script's degrees; with a model of Hugging Face's there are
  // none.
  const jobfile::JobSource config = golden_file("huggingface/llama2-7b.json");
  const jobfile::JobSource deepspeed{"ds.json", R"({"zero_optimization": {"stage": 3}})"};
  CHECK(parallel({config, deepspeed}).tensor_parallel_degree == 1);
  CHECK(parallel({config, deepspeed}).pipeline_parallel_degree == 1);
  CHECK_FALSE(parallel({deepspeed, kOwn}).pipeline_parallel_degree.has_value());
  CHECK(parallel({deepspeed, kOwn}).offload_optimizer == false);
  // What a file leaves open stays so: "auto", and a DeepSpeed file that is not there.
  const jobfile::JobSource open{
      "ds.json", R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "auto"}}})"};
  CHECK_FALSE(parallel({config, open}).offload_optimizer.has_value());
  const jobfile::JobSource unseen{"l.yaml",
                                  "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\n"
                                  "finetuning_type: full\ndeepspeed: not-there.json\n"};
  CHECK_FALSE(parallel({unseen}).offload_optimizer.has_value());
}

TEST_CASE("what a launcher's file says counts more than what the trainer's file leaves out") {
  const jobfile::JobSource train{"l.yaml",
                                 "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\n"
                                 "finetuning_type: full\n"};
  const jobfile::JobSource axolotl{"a.yaml",
                                   "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\n"
                                   "micro_batch_size: 1\n"};
  const jobfile::JobSource fsdp{"fsdp.yaml",
                                "distributed_type: FSDP\nmixed_precision: bf16\n"
                                "fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n"};
  for (const jobfile::JobSource& file : {train, axolotl}) {
    const JobSpec job = job_of_files(any({file, fsdp}, "dgx-h100")).job;
    CHECK(job.parallel.sharding == Sharding::kParameters);
    CHECK(job.parallel.sharded_data_parallel_degree == 8);
    CHECK(job.training.precision == Precision::kBf16);
    CHECK(job_of_files(any({file}, "dgx-h100")).job.parallel.sharding == Sharding::kNone);
  }
  const jobfile::JobSource deepspeed{"ds.yaml",
                                     "distributed_type: DEEPSPEED\n"
                                     "deepspeed_config: {zero_stage: 3}\n"};
  const JobSpec job = job_of_files(any({train, deepspeed}, "dgx-h100")).job;
  CHECK(job.parallel.framework.name == "deepspeed");
  CHECK(job.parallel.sharding == Sharding::kParameters);
  const jobfile::JobSource other{"l.yaml", train.text + "fsdp: shard_grad_op\n"};
  CHECK(complaint(any({other, fsdp}, "dgx-h100")) ==
        "fsdp.yaml: fsdp_config.fsdp_sharding_strategy = FULL_SHARD gives parallel.sharding: "
        "parameters, but fsdp = shard_grad_op of l.yaml gives gradients");
}

TEST_CASE("a length that a file of samples leaves out is assumed, and given by a file of smp") {
  const jobfile::JobSource tune{"a.yaml",
                                "model: {pretrained_model_name_or_path: Qwen/Qwen3-8B}\n"
                                "step_scheduler: {global_batch_size: 32, local_batch_size: 1}\n"};
  const JobOfFiles assumed = job_of_files(any({tune}, "dgx-h100"));
  CHECK(assumed.job.training.sequence_length == 4096);
  CHECK(assumed.warnings ==
        std::vector<std::string>{
            "a.yaml: the file gives no length of a sample: the plan has 4096; give another by "
            "--with FILE, whose line is training: {sequence_length: N}"});
  const jobfile::JobSource length{"length.yaml", "training: {sequence_length: 8192}\n"};
  CHECK(job_of_files(any({tune, length}, "dgx-h100")).job.training.sequence_length == 8192);
}
