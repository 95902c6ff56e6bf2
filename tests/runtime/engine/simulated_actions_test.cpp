// The planner's simulation of a step against the engine's own step in virtual time: both with the
// same seconds for each layer and each call.
#include <doctest/doctest.h>

#include "runtime/engine/exposed_communication.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/layout/traffic.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/schedule/schedule.h"
#include "time/step_player.h"

namespace smp {
namespace {

double call_s(const Plan& plan, const ExposureOptions& options, mesh::CollectiveOp op,
              int64_t count) {
  const int64_t bytes = mesh::wire_bytes(op, plan.degrees.world(), 0, count, bytes_of(DType::kF32));
  return kLinkLatency + static_cast<double>(bytes) / link_bytes_per_s(plan, options);
}

time::StepActionSeconds seconds_of(const Plan& plan, const ExposureOptions& options) {
  const layout::RankLayout layout = layout::rank_layout(plan, 0);
  time::StepActionSeconds seconds;
  time::StageActionSeconds& stage = seconds.stages.emplace_back();
  for (const model::LayerSpec& layer : layout.layers) {
    const double pass_s = model::is_transformer_block(layer.kind) ? options.pass_s : 0;
    seconds.layers.push_back({.forward = pass_s, .backward = 2 * pass_s});
  }
  const int64_t shard = plan.degrees.shard;
  for (const layout::Bucket& bucket : layout.buckets) {
    time::BucketActionSeconds& own = stage.buckets.emplace_back();
    own.reduce =
        call_s(plan, options,
               shard == 1 ? mesh::CollectiveOp::kAllReduce : mesh::CollectiveOp::kReduceScatter,
               bucket.size());
    own.gather = call_s(plan, options, mesh::CollectiveOp::kAllGather, bucket.size() / shard);
  }
  stage.messages.resize(1);
  seconds.agree = kLinkLatency + static_cast<double>(mesh::wire_bytes(
                                     mesh::CollectiveOp::kAllReduce, plan.degrees.world(), 0,
                                     layout::step_sums(plan.job), bytes_of(DType::kF64))) /
                                     link_bytes_per_s(plan, options);
  return seconds;
}

}  // namespace

TEST_CASE("a simulated step waits as long for its calls as the engine's") {
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters}) {
    CAPTURE(static_cast<int>(sharding));
    const Plan plan = exposure_plan(sharding);
    const ExposureOptions options;
    const ExposedCommunication engine = exposed_communication(plan, options);
    const schedule::Schedule schedule = schedule::make_schedule(layout::schedule_parameters(plan));
    const time::PlayedStep played = time::play_step(schedule, seconds_of(plan, options));
    const time::PlayedSums& sums = played.stages.front().sums;
    MESSAGE("engine waits " << 1e3 * engine.exposed_s << " ms, simulation " << 1e3 * sums.exposed
                            << " ms");
    CHECK(sums.computing == doctest::Approx(engine.compute_s));
    CHECK(sums.exposed == doctest::Approx(engine.exposed_s).epsilon(1e-9));
    CHECK(played.seconds == doctest::Approx(sums.end()));
  }
}

}  // namespace smp
