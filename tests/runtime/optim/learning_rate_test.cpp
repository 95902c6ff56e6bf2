#include "smp/runtime/optim/learning_rate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

using namespace smp;
using namespace smp::optim;

namespace {

OptimizerSpec spec_of(LearningRateSchedule schedule) {
  OptimizerSpec spec;
  spec.schedule = schedule;
  spec.learning_rate = 1.0;
  spec.min_learning_rate = 0.1;
  spec.warmup_steps = 4;
  return spec;
}

}  // namespace

TEST_CASE("every schedule warms up linearly, and its first step is not lost") {
  for (const auto schedule : {LearningRateSchedule::kConstant, LearningRateSchedule::kLinear,
                              LearningRateSchedule::kCosine, LearningRateSchedule::kWsd}) {
    const OptimizerSpec spec = spec_of(schedule);
    CHECK(learning_rate_at(spec, 15, 0) == 0.25);
    CHECK(learning_rate_at(spec, 15, 3) == 1.0);
    CHECK(learning_rate_at(spec, 15, 4) == 1.0);
  }
}

TEST_CASE(
    "the learning rate warms up linearly and falls on a cosine to its minimum at the last step") {
  OptimizerSpec spec = spec_of(LearningRateSchedule::kCosine);
  const int64_t steps = 15;
  CHECK(learning_rate_at(spec, steps, 9) == doctest::Approx(0.55));
  CHECK(learning_rate_at(spec, steps, 14) == doctest::Approx(0.1));
  CHECK(learning_rate_at(spec, steps, 20) == doctest::Approx(0.1));
  spec.warmup_steps = 0;
  CHECK(learning_rate_at(spec, 1, 0) == 1.0);
  CHECK(learning_rate_at(spec, 2, 1) == doctest::Approx(0.1));
}

TEST_CASE("after the warm-up cosine and linear are torch's CosineAnnealingLR and LinearLR") {
  // torch/optim/lr_scheduler.py, _get_closed_form_lr of both, with T_max and total_iters = 10.
  const OptimizerSpec cosine = spec_of(LearningRateSchedule::kCosine);
  const OptimizerSpec linear = spec_of(LearningRateSchedule::kLinear);
  for (int64_t t = 0; t <= 10; ++t) {
    const double by_cosine =
        0.1 + (1.0 - 0.1) * (1 + std::cos(std::numbers::pi * static_cast<double>(t) / 10)) / 2;
    const double by_linear = 1.0 * (1.0 + (0.1 - 1.0) * static_cast<double>(t) / 10);
    CHECK(learning_rate_at(cosine, 15, 4 + t) == doctest::Approx(by_cosine).epsilon(1e-14));
    CHECK(learning_rate_at(linear, 15, 4 + t) == doctest::Approx(by_linear).epsilon(1e-14));
  }
}

TEST_CASE("constant stays, and wsd stays until its last decay_steps") {
  const OptimizerSpec constant = spec_of(LearningRateSchedule::kConstant);
  CHECK(learning_rate_at(constant, 15, 14) == 1.0);
  OptimizerSpec wsd = spec_of(LearningRateSchedule::kWsd);
  wsd.decay_steps = 5;
  CHECK(learning_rate_at(wsd, 15, 9) == 1.0);
  CHECK(learning_rate_at(wsd, 15, 10) == doctest::Approx(1.0 - 0.9 / 5));
  CHECK(learning_rate_at(wsd, 15, 14) == doctest::Approx(0.1));
  wsd.decay_steps = 0;
  CHECK(learning_rate_at(wsd, 15, 13) == 1.0);
  wsd.decay_steps = 11;  // no stable part: it falls from the end of the warm-up on
  CHECK(learning_rate_at(wsd, 15, 9) == doctest::Approx(1.0 - 0.9 / 2));
}
