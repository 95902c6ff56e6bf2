#include <doctest/doctest.h>

#include <memory>

#include "plan/plan_samples.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"
#include "smp/planner/links/collective_seconds.h"
#include "smp/planner/memory/memory_estimate.h"

// Habits of framework files that no other test reads: what each of them changes, and what it
// leaves.

using namespace smp;
using namespace smp::choice;
using namespace smp::cost;

namespace {

constexpr double kMiB = 1024.0 * 1024;

JobSpec llama_on(const char* cluster, int64_t hosts) {
  const jobfile::JobSource model{
      "model",
      "model: {family: llama, num_layers: 32, hidden_size: 4096, num_heads: 32, "
      "ffn_hidden_size: 11008, vocab_size: 32000, max_positions: 4096}\n"
      "training: {sequence_length: 4096}\n"};
  JobSpec job = jobfile::read_job({model, jobfile::cluster_source(cluster)});
  job.cluster.hosts = hosts;
  job.parallel.framework = framework::framework_named("megatron-core");
  return job;
}

// The job under a framework that differs from its own in what `change` sets.
template <typename Change>
JobSpec with(JobSpec job, Change change) {
  framework::Framework habits = framework::framework_of(job);
  change(habits.model);
  job.parallel.framework.habits = std::make_shared<const framework::Framework>(habits);
  return job;
}

LayoutChoice tensor_over(int32_t tensor, int32_t pipeline = 1, int32_t micro_batch = 4) {
  LayoutChoice choice;
  choice.tensor = tensor;
  choice.pipeline = pipeline;
  choice.sequence_parallel = tensor > 1;
  choice.micro_batch = micro_batch;
  choice.microbatches = 8;
  return choice;
}

}  // namespace

TEST_CASE("matmuls run at the framework's rate from Hopper on, and in fp8 at a further one") {
  const auto faster = [](framework::FrameworkModel& model) { model.hopper_matmul_rate = 1.25; };
  const auto eight_bits = [](framework::FrameworkModel& model) { model.fp8_matmul_rate = 1.25; };
  for (const char* cluster : {"dgx-a100-80gb", "dgx-h100"}) {
    const JobSpec job = llama_on(cluster, 1);
    const bool hopper = job.cluster.fp8_flops_per_s > 0;
    LayoutChoice choice = tensor_over(1);
    const double own = layer_seconds(job, choice).of(model::LayerKind::kBlock).matmul_forward;
    CHECK(layer_seconds(with(job, faster), choice).of(model::LayerKind::kBlock).matmul_forward ==
          doctest::Approx(hopper ? own / 1.25 : own));
    CHECK(
        layer_seconds(with(job, eight_bits), choice).of(model::LayerKind::kBlock).matmul_forward ==
        own);
    choice.precision = Precision::kFp8;
    const double fp8 = layer_seconds(job, choice).of(model::LayerKind::kBlock).matmul_backward;
    CHECK(
        layer_seconds(with(job, eight_bits), choice).of(model::LayerKind::kBlock).matmul_backward <
        fp8);
  }
}

TEST_CASE("NVFP4 runs at its own peak, with the share of fp8 unless the cluster has its own") {
  JobSpec job = llama_on("gb200", 2);
  LayoutChoice choice = tensor_over(1);
  choice.precision = Precision::kFp8;
  const double fp8 = layer_seconds(job, choice).of(model::LayerKind::kBlock).matmul_forward;
  choice.precision = Precision::kNvfp4;
  const double fp4 = layer_seconds(job, choice).of(model::LayerKind::kBlock).matmul_forward;
  CHECK(fp4 < fp8);
  CHECK(fp4 > fp8 / 2);  // attention stays in 16 bits
  job.cluster.fp4_matmul_efficiency = job.cluster.fp8_matmul_efficiency / 2;
  CHECK(layer_seconds(job, choice).of(model::LayerKind::kBlock).matmul_forward ==
        doctest::Approx(fp8));
}

TEST_CASE("recomputed modules take their forward again, experts with their exchange") {
  JobSpec job = llama_on("dgx-h100", 1);
  job.model.num_experts = 8;
  job.model.experts_per_token = 2;
  job.model.expert_ffn_hidden_size = 1024;
  LayoutChoice choice = tensor_over(1);
  choice.expert = 8;
  choice.recompute = Recompute::kSelective;
  const auto seconds = [&](std::vector<std::string> modules) {
    job.parallel.recompute_modules = std::move(modules);
    return layer_seconds(job, choice).of(model::LayerKind::kMoeBlock);
  };
  const CallSeconds core = seconds({"core_attn"});
  const CallSeconds moe = seconds({"moe"});
  const CallSeconds both = seconds({"core_attn", "moe"});
  CHECK(moe.recompute > moe.expert_forward);
  CHECK(both.recompute == doctest::Approx(core.recompute + moe.recompute));
  CHECK(both.recompute < both.forward());
  CHECK(seconds({"moe_act"}).recompute < moe.recompute - moe.expert_forward);
  CHECK(seconds({"mlp"}).recompute == 0);
  // The norm before the experts, beside them too.
  const double norms = seconds({"layernorm"}).recompute;
  CHECK(norms > 0);
  CHECK(seconds({"moe", "layernorm"}).recompute == doctest::Approx(moe.recompute + norms));
  // What is computed again is launched again, flash attention excepted.
  const ClusterSpec cluster = job.cluster;
  job.cluster.kernel_launch_s = 0;
  const double unlaunched = seconds({"moe"}).recompute;
  job.cluster.kernel_launch_s = 1e-3;
  CHECK(seconds({"moe"}).recompute > 2 * unlaunched);
  CHECK(seconds({"core_attn"}).recompute == doctest::Approx(core.recompute));
  job.cluster = cluster;
}

TEST_CASE("a dense MLP that is recomputed repeats its messages, its norm where that is a part") {
  JobSpec job = llama_on("dgx-h100", 1);
  job.parallel.framework = framework::framework_named("megatron-core");
  LayoutChoice choice = tensor_over(2);
  choice.recompute = Recompute::kSelective;
  const auto seconds = [&](std::vector<std::string> modules) {
    job.parallel.recompute_modules = std::move(modules);
    return layer_seconds(job, choice).of(model::LayerKind::kBlock);
  };
  job.cluster.kernel_launch_s = 0;
  for (const bool sequence : {false, true}) {
    choice.sequence_parallel = sequence;
    const CallSeconds split = seconds({"mlp"});
    ClusterSpec slow = job.cluster;
    std::swap(slow, job.cluster);
    job.cluster.intra_host_bytes_per_s /= 2;
    const CallSeconds slower = seconds({"mlp"});
    std::swap(slow, job.cluster);
    // One of the block's two parts.
    CHECK(slower.recompute - split.recompute ==
          doctest::Approx((slower.tensor_forward - split.tensor_forward) / 2));
    CHECK(slower.recompute > split.recompute);
  }
  CHECK(seconds({"layernorm"}).recompute == 0);  // parts of the matmuls
  const double with_norm = seconds({"mlp"}).recompute;
  job.parallel.framework = framework::framework_named("megatron-core-local");
  const double norms = seconds({"layernorm"}).recompute;
  CHECK(norms > 0);
  CHECK(with_norm - seconds({"mlp"}).recompute == doctest::Approx(norms / 2));
  CHECK(seconds({"mlp", "layernorm"}).recompute == doctest::Approx(with_norm + norms / 2));
}

TEST_CASE("a cluster's fp8 efficiency replaces the share of its 16-bit efficiency") {
  JobSpec job = llama_on("dgx-h100", 1);
  LayoutChoice choice = tensor_over(1);
  choice.precision = Precision::kFp8;
  const CallSeconds usual = layer_seconds(job, choice).of(model::LayerKind::kBlock);
  job.cluster.fp8_matmul_efficiency = 0.8875 * job.cluster.matmul_efficiency;
  CHECK(layer_seconds(job, choice).of(model::LayerKind::kBlock).matmul_forward ==
        doctest::Approx(usual.matmul_forward));
  job.cluster.fp8_matmul_efficiency /= 2;
  CHECK(layer_seconds(job, choice).of(model::LayerKind::kBlock).matmul_forward >
        1.3 * usual.matmul_forward);
}

TEST_CASE("an fp8 recipe decides what a cast moves and how many bytes an element's scale adds") {
  JobSpec job = llama_on("dgx-h100", 1);
  job.training.fp8_parameters = true;
  LayoutChoice choice = tensor_over(1);
  choice.precision = Precision::kFp8;
  const auto moved = [&](Fp8Recipe recipe) {
    job.training.fp8_recipe = recipe;
    return layer_seconds(job, choice).of(model::LayerKind::kBlock).memory_forward;
  };
  const auto saved = [&](Fp8Recipe recipe) {
    job.training.fp8_recipe = recipe;
    return layer_bytes(job, choice).of(model::LayerKind::kBlock).call.saved;
  };
  const double delayed = moved(Fp8Recipe::kDelayed);
  // A second look at 2 B beside 4 B; scales of 1/32 B in each of two copies.
  const double look = moved(Fp8Recipe::kCurrent) - delayed;
  CHECK(look > 0);
  CHECK(moved(Fp8Recipe::kMxfp8) - delayed == doctest::Approx(look / 32));
  CHECK(moved(Fp8Recipe::kBlockwise) == doctest::Approx(moved(Fp8Recipe::kMxfp8)));
  CHECK(saved(Fp8Recipe::kCurrent) == saved(Fp8Recipe::kDelayed));
  CHECK(saved(Fp8Recipe::kMxfp8) > saved(Fp8Recipe::kDelayed));
}

TEST_CASE("fp8 weights are cast once a step, or never where they are parameters in fp8") {
  JobSpec job = llama_on("dgx-h100", 1);
  LayoutChoice choice = tensor_over(1);
  choice.precision = Precision::kFp8;
  choice.microbatches = 1;
  const double each = layer_seconds(job, choice).of(model::LayerKind::kBlock).memory_forward;
  choice.microbatches = 100;
  const double rarely = layer_seconds(job, choice).of(model::LayerKind::kBlock).memory_forward;
  job.training.fp8_parameters = true;
  const double never = layer_seconds(job, choice).of(model::LayerKind::kBlock).memory_forward;
  CHECK(each > rarely);
  CHECK(rarely > never);
  CHECK(each - never == doctest::Approx(100 * (rarely - never)));
}

TEST_CASE("a gate of two kernels keeps what is between them") {
  const JobSpec job = llama_on("dgx-h100", 1);
  const auto apart = [](framework::FrameworkModel& model) { model.fused_gate = false; };
  const LayoutChoice choice = tensor_over(1, 1, 1);
  const double between = 2.0 * 4096 * 11008;
  CHECK(layer_bytes(with(job, apart), choice).of(model::LayerKind::kBlock).call.saved ==
        layer_bytes(job, choice).of(model::LayerKind::kBlock).call.saved + between);
}

TEST_CASE("tensor messages: a share is hidden, and borders of hosts take longer") {
  const JobSpec job = llama_on("dgx-h100", 4);
  const auto hidden = [](framework::FrameworkModel& model) { model.tensor_hidden = 0.5; };
  const auto border = [](framework::FrameworkModel& model) { model.tensor_crossing_s = 0.001; };
  const double inside =
      layer_seconds(job, tensor_over(8)).of(model::LayerKind::kBlock).tensor_forward;
  CHECK(layer_seconds(with(job, hidden), tensor_over(8))
            .of(model::LayerKind::kBlock)
            .tensor_forward == doctest::Approx(inside / 2));
  CHECK(layer_seconds(with(job, border), tensor_over(8))
            .of(model::LayerKind::kBlock)
            .tensor_forward == inside);
  // Two gathers and two scatters, each over one border.
  const double over =
      layer_seconds(job, tensor_over(16)).of(model::LayerKind::kBlock).tensor_forward;
  CHECK(layer_seconds(with(job, border), tensor_over(16))
            .of(model::LayerKind::kBlock)
            .tensor_forward == doctest::Approx(over + 4 * 0.001));
}

TEST_CASE("tensor messages wait where the pipeline crosses hosts, and nowhere else") {
  const JobSpec job = llama_on("dgx-h100", 2);
  const auto waits = [](framework::FrameworkModel& model) { model.pipeline_crossing_s = 0.1; };
  const auto launching = [&](const LayoutChoice& choice) {
    return layer_seconds(with(job, waits), choice).of(model::LayerKind::kBlock).launch_backward;
  };
  CHECK(launching(tensor_over(8, 2)) > 0.1);
  CHECK(launching(tensor_over(1, 16)) < 0.1);
  CHECK(launching(tensor_over(4, 2)) < 0.1);
}

TEST_CASE("asynchronous messages hold tensors while the accelerator has work and room") {
  const JobSpec job = llama_on("dgx-h100", 1);
  const auto holds = [](framework::FrameworkModel& model) { model.held_by_messages = 2; };
  const JobSpec holding = with(job, holds);
  const auto held = [&](const LayoutChoice& choice) { return layer_bytes(holding, choice).held; };
  CHECK(layer_bytes(job, tensor_over(2)).held == 0);
  CHECK(held(tensor_over(1)) == 0);              // no messages
  CHECK(held(tensor_over(8, 1, 1)) < 1 * kMiB);  // the block waits for its launches
  const double whole = 2.0 * 16 * 4096 * 4096;
  CHECK(held(tensor_over(2, 1, 16)) > whole);
  CHECK(held(tensor_over(2, 1, 16)) <= 2 * whole);

  const auto peak = [&](const JobSpec& of, int32_t micro_batch) {
    const LayoutChoice choice = tensor_over(8, 1, micro_batch);
    return memory::estimate_memory(of, choice, layer_bytes(of, choice)).allocated_bytes;
  };
  CHECK(peak(holding, 8) - peak(job, 8) == doctest::Approx(32 * held(tensor_over(8, 1, 8))));
  // Without room a fifth of them stays.
  CHECK(peak(holding, 16) - peak(job, 16) ==
        doctest::Approx(0.2 * 32 * held(tensor_over(8, 1, 16))));
}

TEST_CASE("hosts on one NVLink are one host to a group's messages") {
  JobSpec job = llama_on("gb200", 4);
  REQUIRE(job.cluster.processes_per_host == 4);
  REQUIRE(job.cluster.nvlink_domain == 72);
  const double on_one_link =
      layer_seconds(job, tensor_over(8)).of(model::LayerKind::kBlock).tensor_forward;
  job.cluster.nvlink_domain = 0;
  CHECK(layer_seconds(job, tensor_over(8)).of(model::LayerKind::kBlock).tensor_forward >
        3 * on_one_link);
}

TEST_CASE(
    "small messages between hosts take NCCL's quick protocols only where the network has them") {
  const JobSpec job = llama_on("dgx-h100", 2);
  ClusterSpec slow = job.cluster;
  slow.inter_host_low_latency = false;
  const auto seconds = [](double bytes, const ClusterSpec& cluster) {
    return links::collective_seconds(mesh::CollectiveOp::kAllReduce, bytes, 16, 2, cluster);
  };
  CHECK(seconds(1e3, slow) > 1.5 * seconds(1e3, job.cluster));
  CHECK(seconds(1e9, slow) == doctest::Approx(seconds(1e9, job.cluster)));
  CHECK(!jobfile::read_job({{"m",
                             "model: {family: gpt2, num_layers: 1, hidden_size: 64, num_heads: "
                             "1, vocab_size: 256, max_positions: 8}\ntraining: "
                             "{sequence_length: 8}\n"},
                            jobfile::cluster_source("p4d.24xlarge")})
             .cluster.inter_host_low_latency);
}
