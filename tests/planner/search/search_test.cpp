#include "smp/planner/search/search.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "choice/batch.h"
#include "planner/job_samples.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/choice/legality.h"
#include "smp/planner/prediction/predict.h"
#include "smp/planner/report/groups.h"
#include "smp/planner/report/report.h"
#include "smp/planner/report/terminal.h"
#include "smp/planner/search/check_plan.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::planfile;
using namespace smp::prediction;
using namespace smp::report;
using namespace smp::rules;
using namespace smp::search;
using namespace smp::test;

namespace {

// Accelerators of 40 GB on hosts of 8, as p4d.24xlarge.
JobSpec large_job(const ModelSpec& model, int64_t hosts) {
  JobSpec job;
  job.name = "large";
  job.model = model;
  job.cluster.hosts = hosts;
  job.cluster.processes_per_host = 8;
  job.cluster.device = DeviceKind::kCuda;
  job.cluster.memory_per_process_bytes = int64_t{40} << 30;
  job.cluster.reserved_bytes = int64_t{2} << 30;
  job.cluster.has_bf16 = job.cluster.has_fp16 = true;
  job.cluster.half_flops_per_s = 312e12;
  job.cluster.fp32_flops_per_s = 19.5e12;
  job.cluster.memory_bytes_per_s = 1.5e12;
  job.cluster.host_link_bytes_per_s = 12e9;
  job.cluster.intra_host_bytes_per_s = 230e9;
  job.cluster.inter_host_bytes_per_s = 5e9;
  job.training.sequence_length = 4096;
  return job;
}

Plan plan_of(const JobSpec& job) { return std::get<Plan>(plan_job(job).best); }

std::string error_of(const JobSpec& job) {
  try {
    plan_job(job);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(Plan plan, void (*change)(Plan&)) {
  change(plan);
  const std::vector<std::string> problems = check(plan);
  return problems.empty() ? "" : problems.front();
}

}  // namespace

TEST_CASE("the same job gives the same plan, byte for byte") {
  const JobSpec job = large_job(llama2_7b(), 4);
  CHECK(write_plan(plan_of(job)) == write_plan(plan_of(job)));
  CHECK(write_plan(plan_of(small_job())) == write_plan(plan_of(small_job())));
}

TEST_CASE(
    "precision: bf16 where there is one, else fp16 with loss scaling, else fp32, fp32 on CPUs") {
  JobSpec job = large_job(gpt2_124m(), 1);
  job.training.sequence_length = 1024;
  CHECK(plan_of(job).job.training.precision == Precision::kBf16);
  job.cluster.has_bf16 = false;
  job.cluster.accelerator = "V100";
  CHECK(plan_of(job).job.training.precision == Precision::kFp16);
  CHECK(plan_of(job).reasons.front() == "precision fp16 with loss scaling: V100 has no bf16");
  job.cluster.has_fp16 = false;
  CHECK(plan_of(job).job.training.precision == Precision::kFp32);
  CHECK(plan_of(small_job()).job.training.precision == Precision::kFp32);
}

TEST_CASE("checkpointing from 1 B parameters on, delayed initialisation above 60 B") {
  CHECK(*practical_plan_of(large_job(llama2_7b(), 2)).job.parallel.activation_checkpointing);
  JobSpec job = large_job(gpt2_124m(), 1);
  job.training.sequence_length = 1024;
  CHECK(!*practical_plan_of(job).job.parallel.activation_checkpointing);
  CHECK(!*practical_plan_of(large_job(llama2_13b(), 4))
              .job.parallel.delayed_parameter_initialization);
  CHECK(*practical_plan_of(large_job(llama2_70b(), 32))
             .job.parallel.delayed_parameter_initialization);
}

TEST_CASE("pinned offloading turns checkpointing on, and the plan reads back") {
  JobSpec job = large_job(gpt2_124m(), 1);
  job.training.sequence_length = 1024;
  job.parallel.offload_activations = true;
  const Plan plan = practical_plan_of(job);
  CHECK(*plan.job.parallel.activation_checkpointing);
  CHECK(plan.reasons.at(1) ==
        "activation checkpointing on: offload_activations moves the saved inputs");
  CHECK(*parse_plan("plan.yaml", write_plan(plan)).job.parallel.offload_activations);
}

TEST_CASE("a job on CPUs gets only what the engine runs") {
  JobSpec job = small_job();
  job.cluster.memory_per_process_bytes = 12 << 20;
  const SearchResult result = plan_job(job, {.top = 32});
  CHECK(!result.others.empty());
  const auto runs = [](const Plan& plan) { return what_engine_cannot_run(plan).empty(); };
  CHECK(runs(std::get<Plan>(result.best)));
  CHECK(std::all_of(result.others.begin(), result.others.end(), runs));
  job.parallel.sharding = Sharding::kParameters;
  job.parallel.offload_parameters = true;
  CHECK(error_of(job) ==
        "the engine cannot run this job on device cpu:\n  parallel.offload_parameters: true "
        "without offload_optimizer: true (the engine updates offloaded weights on the host and "
        "needs the optimizer state there)");
  job.parallel.offload_optimizer = true;
  const Plan offloaded = plan_of(job);
  CHECK(runs(offloaded));
  CHECK(offloaded.predictions.ranks.front().host_bytes > 0);
}

TEST_CASE("without rates sequences stay whole where they fit, and are split where they must be") {
  JobSpec job = small_job();
  job.model.max_positions = job.training.sequence_length = 64;
  job.cluster.fp32_flops_per_s = 0;
  job.parallel.tensor_parallel_degree = 2;
  job.parallel.pipeline_parallel_degree = 2;
  const Plan whole = plan_of(job);
  CHECK(whole.job.parallel.sequence_parallel == false);
  job.parallel.tensor_parallel_degree.reset();
  const std::vector<std::string> reasons = plan_of(job).reasons;
  CHECK(std::find(reasons.begin(), reasons.end(),
                  "tensor 1: tensor 2 fits as well; without rates of the cluster their times "
                  "cannot be compared") != reasons.end());
  job.parallel.tensor_parallel_degree = 2;
  job.parallel.sequence_parallel = true;
  const int64_t split_bytes = plan_of(job).predictions.ranks.front().peak_bytes;
  REQUIRE(split_bytes < whole.predictions.ranks.front().peak_bytes);
  // Between the two, margin of memory included.
  job.cluster.memory_per_process_bytes = split_bytes + split_bytes / 20;
  job.parallel.sequence_parallel.reset();
  job.parallel.recompute = Recompute::kNone;
  CHECK(plan_of(job).job.parallel.sequence_parallel == true);
}

TEST_CASE("on CPUs the first products of MLPs are made again where that is enough") {
  JobSpec job = small_job();
  job.model.num_layers = 8;
  job.model.max_positions = job.training.sequence_length = 512;
  job.training.micro_batch = 2;
  job.cluster.memory_bytes_per_s = 1e9;
  job.parallel.tensor_parallel_degree = job.parallel.pipeline_parallel_degree = 1;
  job.parallel.sharding = Sharding::kNone;
  const auto peak_of = [&](Recompute recompute) {
    JobSpec pinned = job;
    pinned.parallel.recompute = recompute;
    return plan_of(pinned).predictions.ranks.front().peak_bytes;
  };
  job.cluster.memory_per_process_bytes = peak_of(Recompute::kNone);  // and no margin
  CHECK(plan_of(job).job.parallel.recompute == Recompute::kSelective);
  job.cluster.memory_per_process_bytes = peak_of(Recompute::kSelective) * 9 / 10;
  CHECK(plan_of(job).job.parallel.recompute == Recompute::kFull);
}

TEST_CASE("a larger cluster of the same accelerators never shards over more than fits need") {
  const int64_t alone = practical_plan_of(large_job(llama2_7b(), 1)).degrees.shard;
  const int64_t many = practical_plan_of(large_job(llama2_7b(), 8)).degrees.shard;
  CHECK(many <= std::max<int64_t>(8, alone));
}

TEST_CASE("pins that no layout can honour name the equation and the nearest legal values") {
  JobSpec job = large_job(llama2_70b(), 4);
  job.parallel.tensor_parallel_degree = 3;
  CHECK(error_of(job) ==
        "parallel.tensor_parallel_degree: 3: processes_per_host (8) is not divisible by 3; legal "
        "values: 1, 2, 4, 8; nearest: 2, 4");
  job = large_job(gpt2_1558m(), 1);
  job.parallel.tensor_parallel_degree = 2;
  CHECK(error_of(job) ==
        "parallel.tensor_parallel_degree: 2: num_heads (25) is not divisible by 2; legal values: "
        "1; nearest: 1");
  job = large_job(llama2_7b(), 4);
  job.parallel.pipeline_parallel_degree = 3;
  CHECK(error_of(job) ==
        "parallel.pipeline_parallel_degree: 3: 3 stages x tensor 1 = 3 neither divides "
        "processes_per_host (8) nor is a multiple of it; legal values: 1, 2, 4, 8, 16, 32; "
        "nearest: 2, 4");
  job = large_job(llama2_7b(), 1);
  job.parallel.tensor_parallel_degree = 4;
  job.parallel.sharding = Sharding::kParameters;
  job.parallel.sharded_data_parallel_degree = 8;
  CHECK(
      error_of(job) ==
      "parallel.sharded_data_parallel_degree: 8: sharded_data_parallel_degree (8) does not divide "
      "the data-parallel degree (2); legal values: 1, 2; nearest: 2");
}

TEST_CASE("a plan says how many layers each stage holds") {
  JobSpec job = small_job();
  CHECK(plan_of(job).job.parallel.partition == std::vector<int64_t>{job.model.num_layers});
  job.parallel.pipeline_parallel_degree = 2;
  job.parallel.pipeline = PipelineKind::kInterleaved;  // one chunk a stage
  const std::vector<int64_t> stages = plan_of(job).job.parallel.partition;
  REQUIRE(stages.size() == 2);
  CHECK(stages[0] == (job.model.num_layers + 1) / 2);
  CHECK(stages[0] + stages[1] == job.model.num_layers);
}

TEST_CASE("samples counted for each rank leave no tensor parallelism open") {
  JobSpec job = large_job(llama2_70b(), 4);
  job.parallel.prescaled_batch = false;
  CHECK(legal_tensor_degrees(job) == std::vector<int64_t>{1});
  CHECK(tensor_problem(job, 2) ==
        std::string("prescaled_batch: false counts samples of each rank, and "
                    "tensor_parallel_degree is 2: write prescaled_batch: true and "
                    "training.micro_batch: that of a rank x 2"));
}

TEST_CASE("shard_optimizer_state: true is optimizer_state over all data-parallel ranks, z = d") {
  JobSpec job = small_job();
  job.parallel.sharding = Sharding::kOptimizerState;
  job.parallel.tensor_parallel_degree = job.parallel.pipeline_parallel_degree = 1;
  job.parallel.sharded_data_parallel_degree = 2;
  Plan plan = plan_of(job);
  CHECK(plan.degrees.replica == 2);
  CHECK(plan.job.parallel.shard_optimizer_state == false);
  CHECK(check(parse_plan("plan.yaml", write_plan(plan))).empty());
  job.parallel.sharded_data_parallel_degree = 4;
  CHECK(plan_of(job).job.parallel.shard_optimizer_state == true);

  job.parallel.shard_optimizer_state = true;
  job.parallel.sharded_data_parallel_degree = 2;
  CHECK(error_of(job) ==
        "parallel.sharded_data_parallel_degree: 2: keys disagree: shard_optimizer_state: true "
        "shards over all 4 data-parallel ranks, but sharded_data_parallel_degree is 2: write "
        "sharding: optimizer_state instead of shard_optimizer_state: true");
  job.parallel.tensor_parallel_degree.reset();  // tensor 2 leaves two data-parallel ranks
  plan = plan_of(job);
  CHECK(plan.degrees.tensor == 2);
  CHECK(plan.degrees.shard == 2);
}

TEST_CASE("grouped KV heads: the tensor degree divides them or is a multiple of them") {
  JobSpec job = large_job(llama2_70b(), 1);
  job.model.num_heads = 48;
  job.model.num_kv_heads = 6;
  CHECK(tensor_problem(job, 4) ==
        std::string("num_kv_heads (6) is neither a multiple nor a divisor of 4"));
  CHECK(!tensor_problem(job, 2));
  CHECK(legal_tensor_degrees(job) == std::vector<int64_t>{1, 2});
}

TEST_CASE("a batch is micro batch x microbatches x data-parallel degree, under the token limit") {
  CHECK(batch_equation(
            {
                2,
                4,
            },
            8, 512) == "2 x 4 x 8 = 64 samples x 512 tokens = 32,768");
  JobSpec job = large_job(llama2_7b(), 256);
  CHECK(
      batch_choices(job, 1, 2048).problem ==
      "1 x 1 x 2,048 = 2,048 samples x 4,096 tokens = 8,388,608 > max_tokens_per_batch 4,194,304");
  REQUIRE(batch_choices(job, 1, 1024).shapes.size() == 1);
  job.training.global_batch = 10;
  CHECK(batch_choices(job, 1, 4).problem ==
        "global_batch 10 is not divisible by the data-parallel degree 4");
  job.training.micro_batch = 2;
  CHECK(batch_choices(job, 1, 2).problem ==
        "global_batch 10 / data-parallel degree 2 = 5 samples, not divisible by micro_batch 2");
  job.training.microbatches = 3;
  CHECK(batch_choices(job, 1, 1).problem ==
        "micro_batch 2 x microbatches 3 x data-parallel degree 1 = 6, global_batch is 10");
}

TEST_CASE("infeasible names the smallest change that would make it fit") {
  JobSpec job = small_job();
  job.cluster.memory_per_process_bytes = 1000;
  const SearchResult result = plan_job(job);
  REQUIRE(std::holds_alternative<Infeasible>(result.best));
  const Infeasible& infeasible = std::get<Infeasible>(result.best);
  REQUIRE(infeasible.changes.size() == 1);
  // The named size must do.
  CAPTURE(infeasible.problem);
  const std::string& change = infeasible.changes.front();
  const std::string key = "cluster.memory_per_process: ";
  REQUIRE(change.starts_with(key));
  job.cluster.memory_per_process_bytes = std::stoll(change.substr(key.size())) << 20;
  CHECK(std::holds_alternative<Plan>(plan_job(job).best));
}

TEST_CASE("each pin alone is tried: the change that is named makes the job fit") {
  const auto changes_of = [](const JobSpec& job) {
    const SearchResult result = plan_job(job);
    CAPTURE((result.best_priced ? describe(result.best_priced->choice) : ""));
    REQUIRE(std::holds_alternative<Infeasible>(result.best));
    return std::get<Infeasible>(result.best).changes;
  };
  const auto names = [](const std::vector<std::string>& changes, const std::string& change) {
    return std::find(changes.begin(), changes.end(), change) != changes.end();
  };
  JobSpec job = small_job();
  job.training.micro_batch = 2;
  job.training.microbatches = 3;
  std::vector<std::string> changes = changes_of(job);
  CHECK(names(changes, "training.microbatches: 1 instead of 3"));
  job.training.microbatches.reset();
  job.training.global_batch = 7;
  job.training.micro_batch.reset();
  job.parallel.tensor_parallel_degree = job.parallel.pipeline_parallel_degree = 1;
  changes = changes_of(job);
  CHECK(names(changes, "training.global_batch: 8 instead of 7"));

  job = large_job(llama2_7b(), 1);
  job.training.precision = Precision::kFp64;
  job.training.micro_batch = 1;
  job.parallel.offload_optimizer = false;
  job.cluster.memory_per_process_bytes = int64_t{24} << 30;
  changes = changes_of(job);
  CHECK(names(changes, "training.precision: bf16 instead of fp64"));

  job = large_job(llama2_7b(), 1);
  job.cluster.host_memory_bytes = int64_t{1} << 30;
  job.parallel.offload_activations = true;
  job.parallel.offload_optimizer = false;
  job.parallel.tensor_parallel_degree = job.parallel.pipeline_parallel_degree = 1;
  changes = changes_of(job);
  CHECK(names(changes, "parallel.offload_activations: false instead of true"));
  // 256 MiB of checkpoints and 9.1 MiB of shared memory for each of 8 ranks.
  CHECK(names(changes, "cluster.host_memory: 2121MiB instead of 1.00 GiB"));

  job = small_job();  // two things are wrong at once
  job.cluster.memory_per_process_bytes = 1000;
  job.training.global_batch.reset();
  job.training.max_tokens_per_batch = 8;
  const SearchResult stuck = plan_job(job);
  CHECK(std::get<Infeasible>(stuck.best).changes.empty());
  CHECK(infeasible_text(stuck, {}).find("  no change of a single key makes it fit: tried pins, "
                                        "memory, hosts and the token limit\n") !=
        std::string::npos);
}

TEST_CASE("a pinned recompute is unpinned in both of its keys") {
  JobSpec job = large_job(llama2_7b(), 1);
  job.parallel.framework = framework::framework_named("megatron-core");
  job.parallel.recompute = Recompute::kNone;
  job.parallel.activation_checkpointing = false;
  job.training.micro_batch = 32;
  job.parallel.tensor_parallel_degree = 8;
  const SearchResult result = plan_job(job);
  REQUIRE(std::holds_alternative<Infeasible>(result.best));
  const std::vector<std::string>& changes = std::get<Infeasible>(result.best).changes;
  CHECK(std::find(changes.begin(), changes.end(), "parallel.recompute: full instead of none") !=
        changes.end());
}

TEST_CASE("activations of other frameworks are offloaded only where blocks are recomputed") {
  JobSpec job = large_job(llama2_7b(), 1);
  job.parallel.framework = framework::framework_named("fsdp2");
  job.parallel.recompute = Recompute::kNone;
  job.parallel.activation_checkpointing = false;
  job.training.micro_batch = 8;
  job.parallel.tensor_parallel_degree = job.parallel.pipeline_parallel_degree = 1;
  job.parallel.context_parallel_degree = 1;
  const SearchResult result = plan_job(job);  // no, where it was once a bad job
  REQUIRE(std::holds_alternative<Infeasible>(result.best));
  CHECK(std::get<Infeasible>(result.best).problem.find("offloaded") == std::string::npos);
}

TEST_CASE("a pinned degree of experts' tensors is tried between 1 and the tensor degree") {
  JobSpec job = large_job(llama2_7b(), 1);
  job.model.num_layers = 4;
  job.model.num_experts = 4;
  job.model.experts_per_token = 2;
  job.parallel.framework = framework::framework_named("megatron-core");
  job.parallel.tensor_parallel_degree = 4;
  job.parallel.expert_parallel_degree = 2;
  job.parallel.expert_tensor_degree = 2;
  const Plan plan = plan_of(job);
  CHECK(plan.degrees.expert == 2);
  CHECK(plan.degrees.expert_tensor == 2);
  CHECK(check(plan).empty());
}

TEST_CASE("zb_v needs layers for two chunks of each stage, and says so") {
  JobSpec job = large_job(llama2_7b(), 1);
  job.model.num_layers = 6;
  job.parallel.pipeline = PipelineKind::kZbV;
  job.parallel.pipeline_parallel_degree = 2;
  job.parallel.partition_method = "uniform";
  const SearchResult result = plan_job(job);
  REQUIRE(std::holds_alternative<Infeasible>(result.best));
  CHECK(std::get<Infeasible>(result.best).problem ==
        "6 layers do not divide by 2 stages x 2 chunks: parallel.partition deals them");
}

TEST_CASE("a proof says what is wrong with a plan that was not made by the planner") {
  const Plan plan = plan_of(small_job());
  CHECK(check(plan).empty());
  CHECK(replaced(plan, [](Plan& p) { p.degrees.tensor = 3; }) ==
        "tensor_parallel_degree 3: processes_per_host (4) is not divisible by 3");
  CHECK(replaced(plan, [](Plan& p) { p.job.cluster.hosts = 2; }) ==
        "pipeline 1 x tensor 1 x context 1 x shard 1 x replica 4 = 4, not the world size (8)");
  CHECK(replaced(plan, [](Plan& p) { p.job.training.global_batch = 9; }) ==
        "batch 2 x 1 x 4 = 8 samples x 16 tokens = 128, but global_batch is 9");
  CHECK(replaced(plan, [](Plan& p) { p.job.training.max_tokens_per_batch = 100; }) ==
        "batch 2 x 1 x 4 = 8 samples x 16 tokens = 128 > max_tokens_per_batch 100");
  CHECK(replaced(plan, [](Plan& p) {
          p.job.cluster.memory_per_process_bytes = 1 << 20;
        }).starts_with("stage 0 tensor 0: needs "));
  CHECK(replaced(plan, [](Plan& p) {
          p.predictions.ranks.front().peak_bytes = 7;
        }).starts_with("stage 0 tensor 0: the plan predicts 7 bytes, this version "));
  CHECK(replaced(plan, [](Plan& p) { p.predictions = {}; }) ==
        "predictions for 0 rank classes, the degrees give 1: plan again");
  CHECK(replaced(plan, [](Plan& p) {
          p.degrees.replica = 2;
          p.degrees.shard = 2;
          p.job.parallel.sharding = Sharding::kNone;
        }) == "keys disagree: sharding is none, but sharded_data_parallel_degree is 2");
  CHECK(replaced(plan,
                 [](Plan& p) {
                   p.degrees.replica = 2;
                   p.degrees.shard = 2;
                   p.job.parallel.sharding = Sharding::kOptimizerState;
                   p.job.parallel.shard_optimizer_state = true;
                 }) ==
        "keys disagree: shard_optimizer_state: true shards over all 4 data-parallel ranks, but "
        "sharded_data_parallel_degree is 2: write sharding: optimizer_state instead of "
        "shard_optimizer_state: true");
  const std::string host = replaced(plan, [](Plan& p) {
    p.job.parallel.offload_optimizer = true;
    p.job.cluster.host_memory_bytes = 1024;
    p.predictions = predict(p);
  });
  CHECK(host.starts_with("stage 0 tensor 0: "));
  CHECK(host.find(" such ranks on a host need ") != std::string::npos);
  CHECK(host.find(" of host memory, a host has 1") != std::string::npos);
  CHECK(replaced(plan, [](Plan& p) { p.job.training.compiled = true; }) ==
        "the engine does not run training.compiled: true (the engine is compiled C++ and does not "
        "use torch.compile)");
}

TEST_CASE("SMP counts other sizes: 8 ranks, tensor 2, pipeline 1 are dp 8 and rdp 4") {
  JobSpec job = large_job(llama2_7b(), 1);
  job.parallel.tensor_parallel_degree = 2;
  job.parallel.pipeline_parallel_degree = 1;
  const std::string text = describe_groups(plan_of(job), 3);
  CHECK(text.find("SMP's sizes   dp 8 = world / pp = 8 / 1,  rdp 4 = world / (pp x tp) = 8 / (1 x "
                  "2),  mp 2, pp 1, tp 2\n") != std::string::npos);
  CHECK(text.find("TP          2  [2, 3]  share each layer's matrices\n") != std::string::npos);
  CHECK(text.find("RDP         4  [1, 3, 5, 7]  same stage and same part of each matrix\n") !=
        std::string::npos);
  CHECK_THROWS_WITH_AS(describe_groups(plan_of(job), 8), "rank 8: the plan has ranks 0 to 7",
                       ConfigError);
}

TEST_CASE("--explain shows the rule of thumb, the batch equation and every rejection's numbers") {
  const SearchResult result = plan_job(large_job(llama2_7b(), 1));
  const std::string text = report_text(result, {.explain = true});
  CHECK(
      text.find("rule of thumb, AMP + Adam: 16-bit weight 2 + 16-bit gradient 2 + fp32 gradient "
                "copy 4 + fp32 master 4 + Adam 8 = 20 B\n"
                "  a parameter; x 6,738,415,616 = 125.51 GiB for the whole model, unsharded; here "
                "18 B a parameter\n") != std::string::npos);
  CHECK(text.find("samples x 4,096 tokens = ") != std::string::npos);
  for (const FamilyVerdict& verdict : result.families) {
    CAPTURE(verdict.reason);
    CHECK(std::any_of(verdict.reason.begin(), verdict.reason.end(),
                      [](char c) { return c >= '0' && c <= '9'; }));
    CHECK(text.find(verdict.reason) != std::string::npos);
  }
}

TEST_CASE("the report's first ten lines answer what is asked first, and it has 22 at most") {
  JobSpec pipelined = large_job(llama2_7b(), 4);
  pipelined.parallel.pipeline_parallel_degree = 4;
  pipelined.training.data_tokens = TokenKind::kBytes;
  JobSpec alone = small_job();
  alone.training.steps = 10;
  JobSpec unlimited = small_job();
  unlimited.cluster.memory_per_process_bytes = 0;
  JobSpec experts = large_job(llama2_7b(), 4);
  experts.training.fused_loss = true;
  experts.training.data_tokens = TokenKind::kBytes;
  const struct {
    JobSpec job;
    const char* fits;
    const char* runs;
  } cases[] = {
      {pipelined, "\nfits     ", "\nruns here: yes, when training.steps is set\n"},
      {alone, "\nfits     ", "\nruns here: yes\n"},
      {unlimited, "; no limit is given\n", "\nruns here: yes, when training.steps is set\n"},
      {experts, "\nfits     ",
       "\nruns here: no, because of training.fused_loss: true (the engine has its own loss "
       "kernels)\n"},
  };
  for (const auto& one : cases) {
    const std::string text = report_text(plan_job(one.job), {});
    CAPTURE(text);
    CHECK(std::count(text.begin(), text.end(), '\n') <= 22);
    size_t end = 0;
    for (int line = 0; line < 10; ++line) end = text.find('\n', end) + 1;
    const std::string first = text.substr(0, end);
    for (const char* head : {"\nchosen   ", one.fits, "\ntime     ", ", MFU ", "\nlargest  ",
                             "\nnext     ", one.runs}) {
      CAPTURE(std::string(head));
      CHECK(first.find(head) != std::string::npos);
    }
    CHECK(text.find("0.0 MiB") == std::string::npos);
    const std::string narrow = fold(report_text(plan_job(one.job), {.columns = 80}), 80);
    CAPTURE(narrow);
    CHECK(std::count(narrow.begin(), narrow.end(), '\n') <= 22);
  }
}

TEST_CASE("nothing fits: the answer is as short") {
  JobSpec job = large_job(llama2_70b(), 1);
  job.cluster.host_link_bytes_per_s = 0;
  const SearchResult result = plan_job(job);
  REQUIRE(std::holds_alternative<Infeasible>(result.best));
  const std::string text = infeasible_text(result, {});
  CHECK(std::count(text.begin(), text.end(), '\n') <= 25);
  const std::string narrow = fold(infeasible_text(result, {.columns = 80}), 80);
  CAPTURE(narrow);
  CHECK(std::count(narrow.begin(), narrow.end(), '\n') <= 25);
}

TEST_CASE("on CPUs a batch that nobody says takes seconds a step, and a reason says so") {
  JobSpec job = small_job();
  job.training.global_batch.reset();
  const Plan plan = plan_of(job);
  CHECK(plan.predictions.step_ns < int64_t{60} * 1'000'000'000);
  const auto says = [](const std::string& reason) {
    return reason.starts_with("batch of at most ") &&
           reason.find("training.global_batch or max_tokens_per_batch changes it") !=
               std::string::npos;
  };
  CHECK(std::any_of(plan.reasons.begin(), plan.reasons.end(), says));
  job.training.max_tokens_per_batch = int64_t{1} << 20;  // said: taken as it is
  const Plan large = plan_of(job);
  CHECK(std::none_of(large.reasons.begin(), large.reasons.end(), says));
  CHECK(large.predictions.tokens_per_step > plan.predictions.tokens_per_step);
}
