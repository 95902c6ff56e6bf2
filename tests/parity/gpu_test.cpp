#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <fstream>

#include "parity/comparison.h"
#include "parity/layouts.h"
#include "runtime/host_gpu.h"
#include "scratch_folder.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/planner/memory/memory_model.h"

// Plans for GPUs, trained by the engine on GPUs of host threads, against the same plans on CPUs.
namespace smp::parity {
namespace {

constexpr int64_t kSteps = 4;

LayoutCase layout_of(const std::string& name, const mesh::Degrees& degrees, PipelineKind pipeline,
                     Sharding sharding) {
  LayoutCase layout{name, degrees, pipeline, sharding};
  layout.virtual_stages = pipeline == PipelineKind::kZbV ? 2 : 1;
  return layout;
}

// The buffers of messages of all ranks against what the plan says of the host's memory, of which
// the groups' shared memory is the rest. The plan counts what may be under way at once; how much is
// hangs on how the ranks keep pace.
void check_buffers(const Plan& plan, int64_t most_pinned) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  int64_t planned = 0;
  for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
    const mesh::Coord coord = mesh.coord_of(rank);
    planned += memory::predict_memory(plan, coord.pipeline, coord.tensor).host_bytes;
    for (const layout::RankGroup& group : layout::rank_groups(plan, rank))
      planned -= layout::communication_bytes(plan, group);
  }
  INFO("message buffers: planned " << planned << " bytes, pinned " << most_pinned);
  const double share = static_cast<double>(most_pinned) / static_cast<double>(planned);
  CHECK(share <= 1.25);
  CHECK(share >= 0.6);
}

void check_on_gpus(const ModelSpec& model, const LayoutCase& layout, Precision precision,
                   const tolerance::Parity& allowed) {
  MESSAGE(layout.name);
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  Plan plan = plan_of(model, layout, precision, folder / "text.txt");
  const Run reference = run(plan, kSteps);
  plan.job.cluster.device = DeviceKind::kCuda;
  plan.job.parallel.data_collectives = CollectivesKind::kHost;
  test::HostGpus gpus;
  const Run ours = run(plan, kSteps, gpus.open());
  check_parity(ours, reference, allowed);
  CHECK(gpus.counts().pinned == 0);
  if (layout.degrees.world() == 1) return;
  CHECK(gpus.counts().to_host > 0);
  CHECK(gpus.counts().to_device > 0);
  if (!layout.offload_activations && !layout.offload_optimizer)
    check_buffers(plan, gpus.counts().most_pinned_bytes);
}

// The same with GPUs that talk among themselves in the groups that `set` says. Returns how many
// groups do.
int check_on_talking_gpus(const ModelSpec& model, const LayoutCase& layout,
                          void (*set)(ParallelSpec&)) {
  MESSAGE(layout.name);
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  Plan plan = plan_of(model, layout, Precision::kFp64, folder / "text.txt");
  const Run reference = run(plan, kSteps);
  plan.job.cluster.device = DeviceKind::kCuda;
  test::HostGpus gpus;
  set(plan.job.parallel);
  const Run ours = run(plan, kSteps, gpus.open());
  check_parity(ours, reference, tolerance::kParityF64);
  return gpus.network().groups();
}

ModelSpec with_dropout(ModelSpec model) {
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

}  // namespace

TEST_CASE("the engine on GPUs that talk among themselves trains as on CPUs, fp64") {
  const auto all = [](ParallelSpec& parallel) {
    parallel.data_collectives = CollectivesKind::kNccl;
  };
  CHECK(check_on_talking_gpus(llama_model(),
                              layout_of("p2d2 ZeRO-3", {.pipeline = 2, .shard = 2},
                                        PipelineKind::kInterleaved, Sharding::kParameters),
                              all) > 2);
}

TEST_CASE("groups of GPUs by NCCL train beside groups by the hosts, as on CPUs, fp64") {
  const LayoutCase layout = layout_of("t2d2 ZeRO-1", {.tensor = 2, .shard = 2},
                                      PipelineKind::kInterleaved, Sharding::kOptimizerState);
  CHECK(check_on_talking_gpus(gpt2_model(), layout, [](ParallelSpec& parallel) {
          parallel.data_collectives = CollectivesKind::kHost;
          parallel.collectives.tensor = CollectivesKind::kNccl;
        }) == 2);
  CHECK(check_on_talking_gpus(gpt2_model(), layout, [](ParallelSpec& parallel) {
          parallel.data_collectives = CollectivesKind::kNccl;
          parallel.collectives.tensor = CollectivesKind::kHost;
          parallel.collectives.shard = CollectivesKind::kNccl;
        }) > 2);
}

TEST_CASE("the engine on GPUs trains GPT-2 and Llama as on CPUs, fp64") {
  const auto simple = PipelineKind::kInterleaved, zb_v = PipelineKind::kZbV;
  const auto one = Sharding::kOptimizerState, three = Sharding::kParameters;
  check_on_gpus(with_dropout(gpt2_model()), layout_of("one GPU", {}, simple, one), Precision::kFp64,
                tolerance::kParityF64);
  check_on_gpus(llama_model(), layout_of("t2p2", {.pipeline = 2, .tensor = 2}, simple, one),
                Precision::kFp64, tolerance::kParityF64);
  LayoutCase all =
      layout_of("p2d2 ZeRO-3 zb_v, offloaded", {.pipeline = 2, .shard = 2}, zb_v, three);
  all.offload_activations = true;
  all.offload_optimizer = true;
  check_on_gpus(with_dropout(gpt2_model()), all, Precision::kFp64, tolerance::kParityF64);
  LayoutCase split =
      layout_of("t2d2 ZeRO-1 split sequences", {.tensor = 2, .shard = 2}, simple, one);
  split.sequence_parallel = true;
  split.recompute = Recompute::kFull;
  check_on_gpus(gpt2_model(), split, Precision::kFp64, tolerance::kParityF64);
}

TEST_CASE("the engine on GPUs trains T5 as on CPUs, fp64") {
  const auto simple = PipelineKind::kInterleaved, zb_h1 = PipelineKind::kZbH1;
  const auto one = Sharding::kOptimizerState, three = Sharding::kParameters;
  check_on_gpus(with_dropout(t5_model()),
                layout_of("p2d2 ZeRO-3", {.pipeline = 2, .shard = 2}, simple, three),
                Precision::kFp64, tolerance::kParityF64);
  LayoutCase split =
      layout_of("t2p2 zb_h1 split sequences", {.pipeline = 2, .tensor = 2}, zb_h1, one);
  split.sequence_parallel = true;
  check_on_gpus(t5_gated_model(), split, Precision::kFp64, tolerance::kParityF64);
}

TEST_CASE("the engine on GPUs trains mixtures of experts as on CPUs, fp64") {
  const auto simple = PipelineKind::kInterleaved, zb_v = PipelineKind::kZbV;
  const auto one = Sharding::kOptimizerState, three = Sharding::kParameters;
  ModelSpec mixtral = mixtral_model();
  mixtral.router_balance_loss = 0.02;
  mixtral.router_z_loss = 0.001;
  check_on_gpus(with_dropout(mixtral), layout_of("one GPU", {}, simple, one), Precision::kFp64,
                tolerance::kParityF64);
  LayoutCase split =
      layout_of("t2d2 ZeRO-1 split sequences", {.tensor = 2, .shard = 2}, simple, one);
  split.sequence_parallel = true;
  split.recompute = Recompute::kSelective;
  check_on_gpus(deepseek_model(), split, Precision::kFp64, tolerance::kParityF64);
  LayoutCase all =
      layout_of("p2d2 ZeRO-3 zb_v, offloaded", {.pipeline = 2, .shard = 2}, zb_v, three);
  all.offload_activations = true;
  all.offload_optimizer = true;
  check_on_gpus(gpt_oss_model(), all, Precision::kFp64, tolerance::kParityF64);
  check_on_gpus(olmoe_model(), layout_of("t2p2", {.pipeline = 2, .tensor = 2}, simple, one),
                Precision::kFp64, tolerance::kParityF64);
}

TEST_CASE("the engine on GPUs updates each bucket as soon as it is reduced, as on CPUs, fp64") {
  for (const bool offloads : {false, true}) {
    LayoutCase layout =
        layout_of("d2, not clipped", {.replica = 2}, PipelineKind::kInterleaved, Sharding::kNone);
    if (offloads)
      layout = layout_of("d2 ZeRO-1, not clipped, offloaded", {.shard = 2},
                         PipelineKind::kInterleaved, Sharding::kOptimizerState);
    layout.offload_optimizer = offloads;
    layout.gradient_clipping = 0;
    check_on_gpus(gpt2_model(), layout, Precision::kFp64, tolerance::kParityF64);
  }
}

TEST_CASE("the engine on GPUs trains as on CPUs, fp32") {
  check_on_gpus(gpt2_model(), {"d2", {.replica = 2}}, Precision::kFp32, tolerance::kParityF32);
}

}  // namespace smp::parity
