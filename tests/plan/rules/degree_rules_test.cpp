#include "smp/plan/rules/degree_rules.h"

#include <doctest/doctest.h>

#include "smp/plan/jobfile/job_reader.h"

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
        "sequence_length (4098) is not divisible by 2 x 2: each context rank takes an early and a "
        "late slice of causal attention");
  job.model.stack = Stack::kEncoder;
  CHECK(context_problem(job, 2) == Problem());
  CHECK(context_problem(job, 4) == "sequence_length (4098) is not divisible by 4");
  CHECK(context_problem(job, 3) == "the world size (16) is not divisible by 3");
}

TEST_CASE("experts are spread over ranks that divide them and a stage's ranks") {
  JobSpec job = mixture_job();
  CHECK(expert_problem(job, 4, 2, 16) == Problem());
  CHECK(expert_problem(job, 3, 1, 16) == "num_experts (8) is not divisible by 3");
  CHECK(expert_problem(job, 8, 4, 16) ==
        "expert 8 x expert tensor 4 = 32 does not divide the 16 ranks of a stage");
  CHECK(expert_problem(job, 1, 3, 16) ==
        "expert_ffn_hidden_size (512) is not divisible by expert_tensor_degree 3");
  job.model.num_experts = 0;
  CHECK(expert_problem(job, 2, 1, 16) == "the model has no experts to spread over 2 ranks");
}

TEST_CASE("sequence parallelism splits tokens over tensor ranks") {
  const JobSpec job = mixture_job();
  CHECK(sequence_parallel_problem(job, 2, 1) == Problem());
  CHECK(sequence_parallel_problem(job, 1, 1) ==
        "sequence parallelism needs a tensor degree above 1");
  CHECK(sequence_parallel_problem(job, 4, 1) ==
        "sequence_length (4098) is not divisible by tensor 4");
  CHECK(sequence_parallel_problem(job, 2, 2) ==
        "sequence_length 4098 / context 2 = 2049 is not divisible by tensor 2");
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

TEST_CASE("the rules that the job reader shares with the planner") {
  ModelSpec model = mixture_job().model;
  CHECK(context_slices(model, 4) == 8);
  model.stack = Stack::kEncoder;
  CHECK(context_slices(model, 4) == 4);
  CHECK(chunks_of_schedule(PipelineKind::kInterleaved) == 1);
  CHECK(chunks_of_schedule(PipelineKind::kZbV) == 2);
  CHECK_FALSE(chunks_of_schedule(PipelineKind::kVirtual));
  ParallelSpec parallel;
  parallel.prescaled_batch = false;
  CHECK(counts_batch_of_group(parallel, 1));
  CHECK_FALSE(counts_batch_of_group(parallel, 2));
  CHECK(can_offload_activations(Profile::kSmp, Recompute::kNone));
  CHECK_FALSE(can_offload_activations(Profile::kMegatron, Recompute::kSelective));
  CHECK(can_offload_activations(Profile::kMegatron, Recompute::kFull));
  CHECK(can_offload_parameters(Sharding::kParameters));
  CHECK_FALSE(can_offload_parameters(Sharding::kGradients));
}
