#include "runtime/engine/exposed_in_layers.h"

#include <ATen/Parallel.h>

#include <memory>
#include <mutex>

#include "parity/layouts.h"
#include "runtime/paced_communicator.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/traffic.h"
#include "smp/runtime/engine/engine.h"

namespace smp {
namespace {

constexpr int64_t kSequence = 4096, kSteps = 3;
constexpr double kCommunicationPerCompute = 0.5;

Plan plan_of(ModelSpec model, const mesh::Degrees& degrees) {
  model.hidden_size = 128;
  model.num_heads = model.num_kv_heads = 8;
  model.head_dim = 16;
  model.ffn_hidden_size = model.expert_ffn_hidden_size = 256;
  model.num_layers = 3;
  model.max_positions = kSequence;
  parity::LayoutCase layout{"", degrees, PipelineKind::kInterleaved, Sharding::kNone};
  layout.microbatches = 1;
  Plan plan = parity::plan_of(model, layout, Precision::kFp32, "");
  TrainingSpec& training = plan.job.training;
  training.sequence_length = kSequence;
  training.micro_batch = 1;
  training.global_batch = degrees.data();
  return plan;
}

engine::ReadSamples samples() {
  return [](int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out) {
    for (int64_t i = 0; i < count * kSequence; ++i) {
      const auto token = [&](int64_t at) { return (at * at * 3 + 7 * first + step + at) % 97; };
      if (int64_t* tokens = out.integers(model::BatchField::kTokens)) tokens[i] = token(i);
      if (int64_t* targets = out.integers(model::BatchField::kTargets)) targets[i] = token(i + 1);
    }
  };
}

// Means of a step, the first one left out. `bytes_per_s` 0: messages take no time.
ExposedCommunication measured(const Plan& plan, double bytes_per_s) {
  const auto ranks = static_cast<double>(plan.degrees.world());
  ExposedCommunication mean;
  std::mutex mutex;
  jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& threads) {
    at::set_num_threads(1);
    const auto clock = cpu_clock();
    PacedLink link(*clock, bytes_per_s > 0 ? bytes_per_s : 1e18, 0);
    PacedCommunicator world(threads, link);
    ledger::MemoryLedger ledger(world.rank(), 0);
    parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
    engine::Engine engine(plan, model, ledger, samples());
    engine.step(0, 0.0);
    const double begin_s = clock->now_s(), busy_s = link.busy_s, waited_s = link.waited_s;
    for (int64_t step = 0; step < kSteps; ++step) engine.step(1 + step, 0.0);
    {
      const std::lock_guard guard(mutex);
      const double waited = link.waited_s - waited_s;
      mean.compute_s += (clock->now_s() - begin_s - waited) / kSteps / ranks;
      mean.communication_s += (link.busy_s - busy_s) / kSteps / ranks;
      mean.exposed_s += waited / kSteps / ranks;
    }
    engine.wait_all();
  });
  return mean;
}

}  // namespace

std::vector<LayerMessages> layer_messages() {
  const ModelSpec dense = parity::llama_model();
  ModelSpec experts = parity::olmoe_model();
  experts.qk_norm = false;
  ModelSpec shared = experts;
  shared.shared_expert_ffn_hidden_size = 512;
  return {{"ring of 4", plan_of(dense, {.context = 4})},
          {"exchange of 4", plan_of(dense, {.context = 4, .exchange = 4})},
          {"ring of 2 x exchange of 2", plan_of(dense, {.context = 4, .exchange = 2})},
          {"experts over 4", plan_of(experts, {.replica = 4, .expert = 4})},
          {"experts over 4, and a shared one", plan_of(shared, {.replica = 4, .expert = 4})}};
}

ExposedCommunication exposed_in_layers(const Plan& plan) {
  const double compute_s = measured(plan, 0).compute_s;
  int64_t bytes = 0;
  for (const layout::Traffic& one : layout::step_traffic(plan, 0)) bytes += one.wire_bytes;
  return measured(plan, static_cast<double>(bytes) / (kCommunicationPerCompute * compute_s));
}

}  // namespace smp
