#include "smp/runtime/optim/loss_scale.h"

#include <doctest/doctest.h>

#include "smp/runtime/engine/engine.h"

using namespace smp;
using namespace smp::optim;

namespace {

LossScaleSpec spec_of(double init, int64_t window, int64_t shift = 1) {
  LossScaleSpec spec;
  spec.init_scale = init;
  spec.scale_window = window;
  spec.delayed_shift = shift;
  return spec;
}

}  // namespace

TEST_CASE("without fp16 the loss scale is 1 and stays") {
  LossScale scale;
  CHECK_FALSE(scale.guards());
  for (int i = 0; i < 3000; ++i) scale.step_done(false);
  CHECK(scale.value() == 1);
}

TEST_CASE("a dynamic scale falls at overflows and grows after a window of good steps") {
  LossScale scale(spec_of(1024, 3));
  scale.step_done(true);
  CHECK(scale.value() == 512);
  scale.step_done(true);
  CHECK(scale.value() == 256);
  for (int i = 0; i < 2; ++i) scale.step_done(false);
  CHECK(scale.value() == 256);
  scale.step_done(false);
  CHECK(scale.value() == 512);
  for (int i = 0; i < 2; ++i) scale.step_done(false);
  scale.step_done(true);  // the window begins anew
  CHECK(scale.value() == 256);
  for (int i = 0; i < 2; ++i) scale.step_done(false);
  CHECK(scale.value() == 256);
  scale.step_done(false);
  CHECK(scale.value() == 512);
  CHECK(scale.state().skipped_steps == 3);
}

TEST_CASE("delayed_shift overflows are forgiven, and again after the scale has grown") {
  LossScale scale(spec_of(1024, 4, 2));
  scale.step_done(true);
  CHECK(scale.value() == 1024);
  scale.step_done(true);
  CHECK(scale.value() == 512);
  scale.step_done(true);  // none left to forgive
  CHECK(scale.value() == 256);
  for (int i = 0; i < 4; ++i) scale.step_done(false);
  CHECK(scale.value() == 512);
  scale.step_done(true);
  CHECK(scale.value() == 512);
}

TEST_CASE("an overflow at the lowest scale is an error, or a step skipped") {
  LossScaleSpec spec = spec_of(2, 1000);
  LossScale scale(spec);
  scale.step_done(true);
  CHECK(scale.value() == 1);
  CHECK_THROWS_WITH_AS(
      scale.step_done(true),
      "gradients overflow fp16 at the lowest loss scale, training.loss_scale.min_scale (1), after "
      "2 skipped steps: lower training.optimizer.learning_rate, or set training.precision: bf16",
      TrainingError);
  spec.raise_error_at_min_scale = false;
  LossScale patient(spec);
  for (int i = 0; i < 5; ++i) patient.step_done(true);
  CHECK(patient.value() == 1);
  CHECK(patient.state().skipped_steps == 5);
}

TEST_CASE("a static scale stays, and counts what it skips") {
  LossScaleSpec spec = spec_of(128, 2);
  spec.dynamic = false;
  LossScale scale(spec);
  scale.step_done(true);
  for (int i = 0; i < 5; ++i) scale.step_done(false);
  CHECK(scale.value() == 128);
  CHECK(scale.state().skipped_steps == 1);
}

TEST_CASE("a loss scale goes on from its state") {
  LossScale one(spec_of(1024, 4, 2));
  one.step_done(true);
  one.step_done(false);
  LossScale other(spec_of(1024, 4, 2));
  other.restore(one.state());
  for (const bool overflowed : {false, false, true, false, false, false, false, true}) {
    one.step_done(overflowed);
    other.step_done(overflowed);
    CHECK(one.value() == other.value());
  }
}
