#include "memory/message_buffers.h"

#include <doctest/doctest.h>

#include "plan/plan_samples.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::cost;
using namespace smp::memory;

namespace {

JobSpec on_gpus(std::optional<CollectivesKind> collectives) {
  JobSpec job;
  job.model = llama2_7b();
  job.cluster.device = DeviceKind::kCuda;
  job.cluster.processes_per_host = 8;
  job.training.sequence_length = 4096;
  job.parallel.data_collectives = collectives;
  return job;
}

double buffers_of(const JobSpec& job, const LayoutChoice& choice, int64_t stage = 0) {
  const cost::LayerBytes layers = layer_bytes(job, choice);
  return message_buffers(job, choice, layers, cost::stage_holds(*layers.kinds, choice, stage));
}

constexpr double kBlock = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008 + 2 * 4096;
constexpr double kHead = 32000.0 * 4096 + 4096;  // with the last norm; larger than the embedding
constexpr auto kByHost = CollectivesKind::kHost;

}  // namespace

TEST_CASE("whole buckets of GPUs by their host: four of gradients, or two and an end if sharded") {
  const JobSpec job = on_gpus(kByHost);
  LayoutChoice choice{.replica = 8, .microbatches = 1};
  const double four = 4 * (kHead + 3 * kBlock);  // fp32
  CHECK(buffers_of(job, choice) == doctest::Approx(four));
  choice = {.shard = 8, .sharding = Sharding::kOptimizerState, .microbatches = 1};
  CHECK(buffers_of(job, choice) == doctest::Approx(four));  // gathers come later, and use these
  choice.sharding = Sharding::kGradients;
  const double two = 4 * (kHead + 2 * kBlock);
  CHECK(buffers_of(job, choice) == doctest::Approx(two));
  choice.sharding = Sharding::kParameters;  // gathers of the layers in use and ahead beside them
  CHECK(buffers_of(job, choice) == doctest::Approx(two + 2 * (kHead + kBlock)));
}

TEST_CASE("without messages by the host, and in other frameworks, there are no buffers") {
  const LayoutChoice choice{.shard = 8, .sharding = Sharding::kParameters, .microbatches = 1};
  CHECK(buffers_of(on_gpus(CollectivesKind::kNccl), choice) == 0);
  JobSpec job = on_gpus(kByHost);
  CHECK(buffers_of(job, {.microbatches = 1}) == 0);
  job.parallel.framework = framework::framework_named("deepspeed");
  CHECK(buffers_of(job, choice) == 0);
  job.parallel.framework = framework::framework_named("smp");
  job.cluster.device = DeviceKind::kCpu;
  CHECK(buffers_of(job, choice) == 0);
}

TEST_CASE(
    "messages of stages go by the host whatever moves the others, those of tensor groups not") {
  const double hidden = 2.0 * 2 * 4096 * 4096;  // micro batch 2, bf16
  LayoutChoice choice{.pipeline = 4, .tensor = 2, .micro_batch = 2, .microbatches = 8};
  JobSpec job = on_gpus(CollectivesKind::kNccl);
  CHECK(buffers_of(job, choice) == doctest::Approx(2 * hidden));  // one neighbour
  CHECK(buffers_of(job, choice, 1) == doctest::Approx(4 * hidden));
  CHECK(buffers_of(job, choice, 3) == doctest::Approx(2 * hidden));
  job = on_gpus(kByHost);
  CHECK(buffers_of(job, choice, 1) == doctest::Approx(5 * hidden));
  choice.sequence_parallel = true;  // a tensor rank sends its part
  CHECK(buffers_of(job, choice, 1) == doctest::Approx(3 * hidden));
}
