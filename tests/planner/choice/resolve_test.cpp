#include "choice/resolve.h"

#include <doctest/doctest.h>

#include <random>

#include "cost/stage_holds.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/planfile/plan_file.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::jobfile;
using namespace smp::planfile;

namespace {

JobSpec mixture_job() {
  return read_job({{"job.yaml",
                    "model:\n  family: llama\n  num_layers: 13\n  hidden_size: 256\n"
                    "  num_heads: 16\n  num_kv_heads: 8\n  ffn_hidden_size: 512\n"
                    "  vocab_size: 1000\n  num_experts: 8\n  experts_per_token: 2\n"
                    "cluster:\n  hosts: 8\n  processes_per_host: 8\n  device: cuda\n"
                    "  memory_per_process: 80GiB\n  fp8_flops_per_s: 2000T\n"
                    "training:\n  sequence_length: 4096\n"}});
}

// A layout of 64 ranks, its parts drawn at random.
LayoutChoice some_choice(std::mt19937_64& engine, int64_t blocks) {
  const auto pick = [&](std::initializer_list<int32_t> values) {
    return *(values.begin() + engine() % values.size());
  };
  const auto coin = [&] { return engine() % 2 == 0; };
  LayoutChoice choice;
  choice.pipeline = pick({1, 2, 4});
  choice.tensor = pick({1, 2, 4});
  choice.context = pick({1, 2});
  const int32_t data = 64 / (choice.pipeline * choice.tensor * choice.context);
  choice.shard = pick({1, 2});
  choice.replica = data / choice.shard;
  choice.expert = pick({1, 2});
  choice.expert_tensor = pick({1, choice.tensor});
  choice.schedule = static_cast<PipelineKind>(engine() % 5);
  choice.virtual_stages = choice.schedule == PipelineKind::kVirtual ? pick({2, 3})
                          : choice.schedule == PipelineKind::kZbV   ? 2
                                                                    : 1;
  choice.sharding = choice.shard == 1 ? Sharding::kNone : static_cast<Sharding>(1 + engine() % 3);
  choice.precision = static_cast<Precision>(engine() % 5);
  choice.recompute = static_cast<Recompute>(engine() % 3);
  if (choice.recompute == Recompute::kFull && coin()) choice.recompute_layers = 2;
  choice.sequence_parallel = choice.tensor > 1 && coin();
  choice.offload_activations = choice.recompute == Recompute::kFull && coin();
  choice.offload_optimizer = coin();
  choice.offload_parameters = choice.sharding == Sharding::kParameters && coin();
  choice.placement = static_cast<PlacementStrategy>(engine() % 8);
  choice.micro_batch = pick({1, 2, 8});
  choice.microbatches = pick({4, 16});
  if (coin()) choice.active_microbatches = 3;
  if (choice.pipeline > 2 && coin()) choice.first_stage_layers = static_cast<int32_t>(blocks / 8);
  if (choice.pipeline > 2 && coin()) choice.last_stage_layers = 2;
  if (choice.pipeline == 4 && choice.has_even_stages() && coin()) {
    const bool by_chunk = choice.virtual_stages == 2 && coin();
    choice.partition = BlockPartition(by_chunk ? std::vector<int64_t>{1, 2, 2, 1, 2, 2, 2, 1}
                                               : std::vector<int64_t>{2, 5, 2, 4});
  }
  return choice;
}

}  // namespace

TEST_CASE("a layout comes back from the plan it became, and from that plan's file") {
  const JobSpec job = mixture_job();
  std::mt19937_64 engine(4);
  for (int i = 0; i < 300; ++i) {
    const LayoutChoice choice = some_choice(engine, job.model.num_layers);
    const Plan plan = resolve(job, choice);
    CHECK(plan.degrees.world() == 64);
    CHECK(choice_of(plan) == choice);
    const std::string text = write_plan(plan);
    const Plan read = parse_plan("plan.yaml", text);
    CHECK(write_plan(read) == text);
    CHECK(choice_of(read) == choice);
    CHECK(write_plan(resolve(read.job, choice)) == text);
  }
}

TEST_CASE("every partition and placement of a plan is in its layout") {
  const JobSpec job = mixture_job();
  LayoutChoice choice;
  choice.pipeline = 4;
  choice.replica = 16;
  Plan plan = resolve(job, choice);
  const auto comes_back = [&] { return write_plan(resolve(plan.job, choice_of(plan))); };
  CHECK(plan.job.parallel.partition == std::vector<int64_t>{4, 3, 3, 3});
  CHECK(choice_of(plan).has_even_stages());

  plan.job.parallel.partition = {2, 4, 4, 3};
  CHECK(choice_of(plan).first_stage_layers == 2);
  CHECK(choice_of(plan).last_stage_layers == 0);
  CHECK(choice_of(plan).partition.empty());
  CHECK(comes_back() == write_plan(plan));

  plan.job.parallel.partition = {3, 5, 2, 3};
  CHECK(choice_of(plan).partition.blocks() == plan.job.parallel.partition);
  CHECK(stage_layers(choice_of(plan), 13, 1) == 5);
  CHECK(comes_back() == write_plan(plan));

  for (const char* placement : {"cluster", "spread", "DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}) {
    plan.job.parallel.placement_strategy = placement;
    CHECK(name_of(choice_of(plan).placement) == placement);
    CHECK(comes_back() == write_plan(plan));
  }
}

TEST_CASE("a listed partition of chunks: each stage has the blocks of its own chunks") {
  JobSpec job = mixture_job();
  job.model.moe_layer_period = 2;  // blocks 0, 2, 4, ... have experts
  LayoutChoice choice;
  choice.pipeline = 2;
  choice.replica = 32;
  choice.schedule = PipelineKind::kVirtual;
  choice.virtual_stages = 2;
  choice.microbatches = 4;
  choice.partition = BlockPartition({2, 5, 1, 5});  // stage 0: blocks 0, 1 and 7
  CHECK(stage_layers(choice, 13, 0) == 3);
  CHECK(stage_layers(choice, 13, 1) == 10);
  const cost::LayerKinds kinds(job);
  const size_t dense = kinds.of(model::LayerKind::kBlock);
  const size_t experts = kinds.of(model::LayerKind::kMoeBlock);
  CHECK(cost::stage_holds(kinds, choice, 0).of_kind[experts] == 1);
  CHECK(cost::stage_holds(kinds, choice, 0).of_kind[dense] == 2);
  CHECK(cost::stage_holds(kinds, choice, 1).of_kind[experts] == 6);
  CHECK(cost::stage_holds(kinds, choice, 1).of_kind[dense] == 4);
}
