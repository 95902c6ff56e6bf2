#include "smp/planner/choice/layout_rules.h"

#include <doctest/doctest.h>

#include "smp/plan/jobfile/job_reader.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::jobfile;
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

LayoutChoice sixteen() {
  LayoutChoice choice;
  choice.tensor = 2;
  choice.replica = 8;
  choice.expert_tensor = 2;
  return choice;
}

}  // namespace

TEST_CASE("virtual stages divide the layers, and stages the microbatches") {
  const JobSpec job = mixture_job();
  LayoutChoice choice;
  choice.pipeline = 4;
  choice.microbatches = 8;
  choice.schedule = PipelineKind::kVirtual;
  choice.virtual_stages = 3;
  CHECK(virtual_stages_problem(job, choice) == Problem());
  choice.virtual_stages = 2;
  CHECK(virtual_stages_problem(job, choice) ==
        "12 layers are not divisible by 4 stages x 2 chunks = 8");
  choice.virtual_stages = 3;
  choice.microbatches = 6;
  CHECK(virtual_stages_problem(job, choice)->find("6 % 4 = 2, which must be 0") !=
        std::string::npos);
  choice.schedule = PipelineKind::kZbV;
  CHECK(virtual_stages_problem(job, choice) ==
        "pipeline: zb_v holds two chunks on each rank: virtual_pipeline_degree must be 2, not 3");
  choice.schedule = PipelineKind::kInterleaved;
  CHECK(virtual_stages_problem(job, choice) ==
        "keys disagree: virtual_pipeline_degree is 3, but pipeline: interleaved holds one chunk on "
        "each rank; write pipeline: virtual");
}

TEST_CASE("a whole layout is legal, or the first broken rule is said") {
  const JobSpec job = mixture_job();
  CHECK(layout_problem(job, sixteen()) == Problem());
  LayoutChoice choice = sixteen();
  choice.replica = 4;
  CHECK(layout_problem(job, choice) ==
        "pipeline 1 x tensor 2 x context 1 x shard 1 x replica 4 = 8, not the world size (16)");
  choice = sixteen();
  choice.offload_activations = true;
  CHECK(layout_problem(job, choice) == Problem());
  JobSpec other = job;
  other.parallel.framework.name = "deepspeed";
  CHECK(
      layout_problem(other, choice) ==
      "offload_activations with framework deepspeed needs recompute: full, but recompute is none");
  choice = sixteen();
  choice.offload_parameters = true;
  CHECK(layout_problem(job, choice) ==
        "offload_parameters: true needs sharding: parameters, but sharding is none");
  choice = sixteen();
  choice.tensor = 3;
  CHECK(layout_problem(job, choice) == "processes_per_host (8) is not divisible by 3");
}
