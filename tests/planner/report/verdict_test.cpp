#include "smp/planner/report/verdict.h"

#include <doctest/doctest.h>

#include "planner/job_samples.h"

using namespace smp;
using namespace smp::report;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

Verdict sample() {
  Verdict verdict;
  verdict.fit = prediction::Fit::kFits;
  verdict.on_accelerator = true;
  verdict.phase = "backward";
  verdict.peak_bytes = 612 * kGiB / 10;
  verdict.high_bytes = 70 * kGiB;
  verdict.allowed_bytes = 796 * kGiB / 10;
  verdict.events = {{"evaluation", kGiB, {}}, {"second step, backward", 612 * kGiB / 10, {}}};
  verdict.step_s = 1.84;
  verdict.low_s = 1.75;
  verdict.high_s = 2.1;
  verdict.bound_by = "matmuls";
  verdict.mfu = 0.43;
  verdict.warnings.resize(2);
  return verdict;
}

}  // namespace

TEST_CASE("the line of a verdict") {
  Verdict verdict = sample();
  CHECK(verdict_line(verdict) ==
        "fits: 61.2 of 79.6 GiB a rank (fullest: stage 0, backward), step 1.84 s (1.75 s to 2.10 "
        "s), MFU 43 %, bound by matmuls; 2 warnings");
  verdict.warnings.resize(1);
  verdict.mfu.reset();
  verdict.allowed_bytes = 0;
  CHECK(verdict_line(verdict) ==
        "fits: 61.20 GiB a rank, no limit is given (fullest: stage 0, backward), step 1.84 s (1.75 "
        "s to 2.10 s), bound by matmuls; 1 warning");
  verdict = sample();
  verdict.fit = prediction::Fit::kTight;
  verdict.step_s = 0;
  verdict.warnings.clear();
  CHECK(verdict_line(verdict) ==
        "tight: allocator retries likely: 61.2 of 79.6 GiB a rank (fullest: stage 0, backward)");
  verdict.on_accelerator = false;
  CHECK(verdict_line(verdict) ==
        "tight: may exceed its limit: 61.2 of 79.6 GiB a rank (fullest: stage 0, backward)");
}

TEST_CASE("the table of events marks the largest") {
  CHECK(events_text(sample()) ==
        "  evaluation               1.00 GiB\n"
        "  second step, backward   61.20 GiB  largest\n");
}

TEST_CASE("a verdict has the plan's own peak and step") {
  const Plan plan = test::practical_plan_of(test::small_job());
  const Verdict verdict = verdict_of(plan);
  CHECK(verdict.fit == prediction::Fit::kFits);
  CHECK(verdict.peak_bytes == plan.predictions.ranks.front().peak_bytes);
  CHECK(verdict.step_s * 1e9 == doctest::Approx(double(plan.predictions.step_ns)));
  double sum = 0;
  for (const TimePartSeconds& part : verdict.parts) sum += part.seconds;
  CHECK(sum == doctest::Approx(verdict.step_s));
  CHECK(!verdict.bound_by.empty());
}
