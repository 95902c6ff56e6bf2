#include "smp/plan/rules/degree_rules.h"

#include <doctest/doctest.h>

#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/spec/plan.h"

using namespace smp;
using namespace smp::jobfile;
using namespace smp::rules;
using Problem = std::optional<std::string>;

namespace {

JobSpec mixture_job() {
  return read_job({{"job.yaml",
                    "model:\n  family: llama\n  num_layers: 12\n  hidden_size: 256\n"
                    "  num_heads: 16\n  num_kv_heads: 8\n  ffn_hidden_size: 512\n"
                    "  vocab_size: 1000\n  num_experts: 8\n  experts_per_token: 2\n"
                    "cluster:\n  hosts: 2\n  processes_per_host: 8\n  device: cuda\n"
                    "  memory_per_process: 80GiB\n"
                    "training:\n  sequence_length: 4098\n"}});
}

}  // namespace

TEST_CASE("context ranks take two slices of a causal sequence each") {
  JobSpec job = mixture_job();
  CHECK(context_problem(job, 1) == Problem());
  CHECK(context_problem(job, 2) ==
        "sequence_length (4098) is not divisible by 2 x context_parallel_degree (2): each rank "
        "takes an early and a late slice, which balances causal attention");
  job.model.stack = Stack::kEncoder;
  CHECK(context_problem(job, 2) == Problem());
  CHECK(context_problem(job, 4) ==
        "sequence_length (4098) is not divisible by context_parallel_degree (4)");
  CHECK(context_problem(job, 3) ==
        "context_parallel_degree (3) does not divide the 16 processes of the cluster (2 hosts x "
        "8)");
}

TEST_CASE("experts are spread over ranks that divide them and a stage's ranks") {
  JobSpec job = mixture_job();
  CHECK(expert_problem(job, 4, 2, 16) == Problem());
  CHECK(expert_problem(job, 3, 1, 16) ==
        "num_experts (8) is not divisible by expert_parallel_degree (3)");
  CHECK(expert_problem(job, 8, 4, 16) ==
        "expert_parallel_degree (8) x expert_tensor_degree (4) = 32 does not divide the 16 ranks "
        "of a "
        "stage");
  CHECK(expert_problem(job, 1, 3, 16) ==
        "expert_ffn_hidden_size (512) is not divisible by expert_tensor_degree 3");
  job.model.num_experts = 0;
  CHECK(expert_problem(job, 2, 1, 16) == "the model has no experts to spread over 2 ranks");
}

TEST_CASE("in our engine on CPUs whole experts are spread, over tensor ranks first") {
  JobSpec job = mixture_job();
  CHECK(engine_experts_problem(job, 4, 2, 4, 3) == Problem());  // on GPUs
  CHECK(default_expert_tensor(job, 2, 4) == 4);
  job.cluster.device = DeviceKind::kCpu;
  CHECK(default_expert_tensor(job, 2, 4) == 1);
  CHECK(default_expert_tensor(job, 1, 4) == 4);
  CHECK(engine_experts_problem(job, 4, 1, 4, 3) == Problem());
  CHECK(engine_experts_problem(job, 2, 4, 1, 8) == Problem());
  CHECK(engine_experts_problem(job, 2, 4, 1, std::nullopt) == Problem());
  CHECK(engine_experts_problem(job, 2, 4, 2, 8) ==
        "expert_tensor_degree (2) is above 1 with expert_parallel_degree (4): the engine gives "
        "each expert to one rank");
  CHECK(engine_experts_problem(job, 4, 2, 1, 8) ==
        "expert_parallel_degree (2) is no multiple of tensor_parallel_degree (4): the tensor "
        "ranks, which have a part of the tokens each, share the experts too");
  CHECK(engine_experts_problem(job, 2, 4, 1, 2) ==
        "expert_parallel_degree (4) does not divide the 2 ranks of a stage that share a copy of "
        "its sharded states (tensor x context x sharded_data_parallel_degree)");
}

TEST_CASE("sequence parallelism splits tokens over tensor ranks") {
  const JobSpec job = mixture_job();
  CHECK(sequence_parallel_problem(job, 2, 1) == Problem());
  CHECK(sequence_parallel_problem(job, 1, 1) ==
        "sequence_parallel: true needs tensor_parallel_degree above 1, but "
        "tensor_parallel_degree is 1");
  CHECK(sequence_parallel_problem(job, 4, 1) ==
        "sequence_parallel: true needs a sequence_length (4098) that tensor_parallel_degree (4) "
        "divides");
  CHECK(
      sequence_parallel_problem(job, 2, 2) ==
      "sequence_parallel: true needs a sequence_length (4098) / context_parallel_degree (2) = 2049 "
      "that tensor_parallel_degree (2) divides");
}

TEST_CASE("every batch of a ramp is a multiple of what one microbatch of all ranks takes") {
  TrainingSpec training;
  CHECK(batch_ramp_problem(training, 3, 5) == Problem());
  training.batch_ramp_start = 32;
  training.batch_ramp_increment = 48;
  CHECK(batch_ramp_problem(training, 2, 8) == Problem());
  CHECK(batch_ramp_problem(training, 2, 32) ==
        "batch_ramp_start (32) is not divisible by micro_batch 2 x data 32 = 64");
  CHECK(batch_ramp_problem(training, 1, 32) ==
        "batch_ramp_increment (48) is not divisible by micro_batch 1 x data 32 = 32");
}

TEST_CASE("latent attention has no KV heads that a tensor degree must divide") {
  JobSpec job = mixture_job();
  job.model.num_kv_heads = 5;
  CHECK(tensor_problem(job, 2) ==
        std::string("num_kv_heads (5) is neither a multiple nor a divisor of 2"));
  job.model.kv_lora_rank = 64;
  CHECK_FALSE(tensor_problem(job, 2));
}

TEST_CASE("tensor ranks share the heads and the groups of Mamba-2 layers") {
  JobSpec job = read_job({{"job.yaml", "model: nemotron-h-8b\ncluster: dgx-h100\n"}});
  CHECK(tensor_problem(job, 8) == Problem());
  job.model.mamba_groups = 4;
  CHECK(tensor_problem(job, 8) == "mamba_groups (4) is not divisible by 8");
  job.model.mamba_heads = 4;
  CHECK(tensor_problem(job, 8) == "mamba_heads (4) is not divisible by 8");
}

TEST_CASE("tensor ranks of the engine share the experts, those of other frameworks cut each") {
  JobSpec job = mixture_job();
  job.model.num_experts = 2;
  job.cluster.device = DeviceKind::kCpu;
  CHECK(tensor_problem(job, 2) == Problem());
  CHECK(tensor_problem(job, 4) == "num_experts (2) is below 4: tensor ranks share the experts");
  job.parallel.tensor_parallel.mlp = false;
  CHECK(tensor_problem(job, 4) == Problem());
  job.parallel.tensor_parallel.mlp = true;
  job.cluster.device = DeviceKind::kCuda;
  CHECK(tensor_problem(job, 4) == Problem());
}

TEST_CASE("the rules that the job reader shares with the planner") {
  CHECK(chunks_problem(PipelineKind::kInterleaved, 1) == Problem());
  CHECK(chunks_problem(PipelineKind::kZbV, 2) == Problem());
  CHECK(chunks_problem(PipelineKind::kZbV, 1));
  CHECK(chunks_problem(PipelineKind::kVirtual, 3) == Problem());
  JobSpec job = mixture_job();
  job.parallel.prescaled_batch = false;
  CHECK(prescaled_batch_problem(job, 1) == Problem());
  CHECK(prescaled_batch_problem(job, 2));
  CHECK(offload_activations_problem({}, Recompute::kNone) == Problem());
  CHECK(offload_activations_problem({"megatron-core"}, Recompute::kSelective));
  CHECK(offload_activations_problem({"megatron-core"}, Recompute::kFull) == Problem());
  CHECK(offload_parameters_problem(Sharding::kParameters) == Problem());
  CHECK(offload_parameters_problem(Sharding::kGradients));
}

TEST_CASE("sharding none is a degree of 1, and every other one is above 1 among peers") {
  CHECK(sharding_problem(Sharding::kNone, 1, true) == Problem());
  CHECK(sharding_problem(Sharding::kNone, 2, true) ==
        "keys disagree: sharding is none, but sharded_data_parallel_degree is 2");
  CHECK(sharding_problem(Sharding::kGradients, 1, true) ==
        "keys disagree: sharding is gradients, but sharded_data_parallel_degree is 1");
  CHECK(sharding_problem(Sharding::kGradients, 1, false) == Problem());
  CHECK(shards_over_all_problem({2, 4}, 4) == Problem());
  CHECK(shards_over_all_problem({2, 4}, 8) ==
        "keys disagree: shard_optimizer_state: true shards over all 2 or 4 data-parallel ranks, "
        "but sharded_data_parallel_degree is 8: write sharding: optimizer_state instead of "
        "shard_optimizer_state: true");
}

TEST_CASE("a partition has a number for each stage, or for each chunk of the schedule") {
  ParallelSpec parallel;
  CHECK(partition_problem(parallel, 2) == Problem());
  parallel.partition = {1, 2, 2, 1};
  CHECK(partition_problem(parallel, 4) == Problem());
  CHECK(partition_problem(parallel, 2) == Problem());  // an open schedule has 2 chunks then
  CHECK(partition_problem(parallel, 3) ==
        "partition has 4 entries, pipeline_parallel_degree is 3: give one layer count for each "
        "stage, or for each chunk");
  parallel.pipeline = PipelineKind::kZbV;
  CHECK(partition_problem(parallel, 2) == Problem());
  parallel.pipeline = PipelineKind::kVirtual;
  CHECK(partition_problem(parallel, 2) == Problem());
  parallel.virtual_pipeline_degree = 3;
  CHECK(partition_problem(parallel, 2) ==
        "partition has 4 entries, pipeline_parallel_degree is 2: give one layer count for each "
        "stage, or for each of the 6 chunks");
  parallel.pipeline = PipelineKind::kSimple;
  CHECK(partition_problem(parallel, 2) ==
        "partition has 4 entries, pipeline_parallel_degree is 2: give one layer count for each "
        "stage");
}
