#include "smp/planner/time/pipeline_estimate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "smp/plan/schedule/schedule.h"
#include "smp/planner/memory/memory_estimate.h"
#include "time/pipeline_time.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::memory;
using namespace smp::schedule;
using namespace smp::time;

namespace {

constexpr PipelineKind kKinds[] = {PipelineKind::kSimple, PipelineKind::kInterleaved,
                                   PipelineKind::kVirtual, PipelineKind::kZbH1, PipelineKind::kZbV};

// Pipelines of up to 16 stages and 80 microbatches, with and without a cap, whose backwards,
// weight gradients and messages take various shares of a forward.
class Shapes {
 public:
  explicit Shapes(PipelineKind kind) : kind_(kind) {}

  PipelineShape next(double uneven) {
    PipelineShape shape;
    do {
      shape.kind = kind_;
      shape.stages = between(1, 16);
      shape.virtual_stages = kind_ == PipelineKind::kVirtual ? between(2, 6) : 1;
      shape.microbatches =
          kind_ == PipelineKind::kVirtual ? shape.stages * between(1, 8) : between(1, 80);
      shape.active_microbatches = between(0, 1) * between(1, shape.stages + 2);
    } while (schedule_refused(schedule_of(shape)));
    shape.stage = {1, 0.7 + 1.3 * share(), 0.6 + 0.6 * share()};
    shape.send_activation_s = 0.2 * share() * share();
    shape.send_gradient_s = 0.2 * share() * share();
    const double first = uneven * share();
    const double last = uneven * share();
    shape.first = {0.3 * first, 0.3 * first, first};
    shape.last = {last, 2 * last, 0};
    return shape;
  }

  static ScheduleShape schedule_of(const PipelineShape& shape) {
    return {shape.kind, shape.stages, shape.virtual_stages, shape.microbatches,
            shape.active_microbatches};
  }

 private:
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(generator_() % static_cast<uint64_t>(high - low + 1));
  }
  double share() { return static_cast<double>(generator_() % 1000) / 1000; }

  const PipelineKind kind_;
  std::mt19937_64 generator_{7};
};

void add(ChunkCost& chunk, const PipelineShape::Work& work, bool defers, double share) {
  chunk.forward_s += share * work.forward_s;
  chunk.backward_s += share * (work.backward_s + (defers ? 0 : work.weight_s));
  chunk.weight_s += share * (defers ? work.weight_s : 0);
}

double simulated(const PipelineShape& shape) {
  const ScheduleShape schedule = Shapes::schedule_of(shape);
  const int64_t chunks = schedule.chunks();
  const bool defers = defers_weight_gradients(shape.kind);
  ChunkCost average{.send_activation_s = shape.send_activation_s,
                    .send_gradient_s = shape.send_gradient_s};
  add(average, shape.stage, defers, 1.0 / static_cast<double>(chunks));
  PipelineCosts costs(static_cast<size_t>(shape.stages),
                      std::vector<ChunkCost>(static_cast<size_t>(chunks), average));
  const ChunkPlace head = place_of_chunk(schedule, shape.stages * chunks - 1);
  add(costs.front().front(), shape.first, defers, 1);
  add(costs[static_cast<size_t>(head.stage)][static_cast<size_t>(head.chunk)], shape.last, defers,
      1);
  return simulate_pipeline(costs, schedule).makespan_s;
}

struct Errors {
  double mean = 0;
  double p95 = 0;
  double worst = 0;
};

Errors errors_of(PipelineKind kind, double uneven, int count) {
  Shapes shapes(kind);
  std::vector<double> errors;
  Errors found;
  for (int i = 0; i < count; ++i) {
    const PipelineShape shape = shapes.next(uneven);
    const double estimate = pipeline_seconds(shape);
    errors.push_back(std::abs(estimate / simulated(shape) - 1));
    found.mean += errors.back() / count;
    // Never less than the work of a stage, nor than one microbatch through the model.
    const double stage = shape.stage.forward_s + shape.stage.backward_s + shape.stage.weight_s;
    CHECK(estimate >= static_cast<double>(shape.microbatches) * stage * (1 - 1e-12));
    CHECK(estimate >= static_cast<double>(shape.stages) *
                          (shape.stage.forward_s + shape.stage.backward_s) * (1 - 1e-12));
  }
  std::sort(errors.begin(), errors.end());
  found.p95 = errors[errors.size() * 95 / 100];
  found.worst = errors.back();
  return found;
}

}  // namespace

TEST_CASE("closed form of a pipeline's time = its simulation: equal stages") {
  for (const PipelineKind kind : kKinds) {
    const Errors errors = errors_of(kind, 0, 400);
    CAPTURE(static_cast<int>(kind));
    CHECK(errors.worst < 0.01);
    CHECK(errors.mean < 0.001);
  }
}

TEST_CASE("closed form of a pipeline's time: ends that take up to a third more") {
  for (const PipelineKind kind : kKinds) {
    const Errors errors = errors_of(kind, 0.3, 400);
    CAPTURE(static_cast<int>(kind));
    CHECK(errors.mean < 0.015);
    CHECK(errors.p95 < 0.05);
  }
}

TEST_CASE("bubbles of the textbook") {
  // Idle time of a stage where a forward, an input gradient and a weight gradient take 1 each.
  const auto idle = [](PipelineKind kind, int64_t p, int64_t v, int64_t m) {
    return pipeline_seconds({.kind = kind,
                             .stages = p,
                             .virtual_stages = v,
                             .microbatches = m,
                             .stage = {1, 1, 1}}) -
           3.0 * static_cast<double>(m);
  };
  for (const int64_t p : {2, 4, 8, 32}) {
    const auto ramp = static_cast<double>(p - 1);
    CHECK(idle(PipelineKind::kSimple, p, 1, 2 * p) == doctest::Approx(3 * ramp));
    CHECK(idle(PipelineKind::kInterleaved, p, 1, 2 * p) == doctest::Approx(3 * ramp));
    CHECK(idle(PipelineKind::kVirtual, p, 3, 2 * p) == doctest::Approx(ramp));
    CHECK(idle(PipelineKind::kZbH1, p, 1, 2 * p) == doctest::Approx(ramp));
    CHECK(idle(PipelineKind::kZbV, p, 1, 2 * p) == doctest::Approx(ramp / 2));
  }
}

namespace {

// Seconds of so many calls, of the quickest of some rounds.
double seconds_of_calls(int microbatches) {
  PipelineShape shape{.kind = PipelineKind::kZbV,
                      .stages = 16,
                      .microbatches = microbatches,
                      .stage = {1, 1.2, 0.9},
                      .send_activation_s = 0.05,
                      .send_gradient_s = 0.05};
  double quickest = std::numeric_limits<double>::infinity();
  double sum = 0;
  for (int round = 0; round < 10; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 5'000; ++i) {
      shape.microbatches = microbatches + i % 32;
      sum += pipeline_seconds(shape);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    quickest = std::min(quickest, spent.count());
  }
  CHECK(sum > 0);
  return quickest;
}

}  // namespace

TEST_CASE("a closed form takes no longer for a thousand times the microbatches") {
  const double few = seconds_of_calls(64), many = seconds_of_calls(64'000);
  MESSAGE("pipeline_seconds of zb_v: " << few / 5'000 * 1e9 << " ns, " << many / 5'000 * 1e9
                                       << " ns");
  CHECK(many < 10 * few);
}

TEST_CASE("microbatches in flight = a walk over the schedule's actions") {
  int64_t compared = 0;
  for (const PipelineKind kind : kKinds)
    for (int64_t p = 1; p <= 9; ++p)
      for (int64_t m = 1; m <= 20; ++m)
        for (const int64_t cap : {0, 1, 2, 3, 5, 9})
          for (const int64_t v : {1, 2, 3, 5}) {
            if ((kind == PipelineKind::kVirtual) != (v > 1)) continue;
            const ScheduleShape shape{kind, p, v, m, cap};
            if (schedule_refused(shape)) continue;
            const Schedule schedule = condensed_schedule(shape);
            LayoutChoice choice;
            choice.schedule = kind;
            choice.pipeline = static_cast<int32_t>(p);
            choice.virtual_stages = static_cast<int32_t>(v);
            choice.microbatches = static_cast<int32_t>(m);
            choice.active_microbatches = static_cast<int32_t>(cap);
            for (int64_t stage = 0; stage < p; ++stage) {
              const double walked = static_cast<double>(max_live(schedule, stage)) /
                                    static_cast<double>(shape.chunks());
              REQUIRE(microbatches_in_flight(choice, stage) == doctest::Approx(walked));
              ++compared;
            }
          }
  CHECK(compared > 10'000);
}
