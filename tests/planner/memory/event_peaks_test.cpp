#include "smp/planner/memory/event_peaks.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "planner/job_samples.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"

using namespace smp;
using namespace smp::memory;

namespace {

Plan experts_plan(const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {"training.global_batch=64"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const JobSpec job = jobfile::read_job(
      {{"job.yaml",
        "model: {family: llama, num_layers: 8, hidden_size: 1024, num_heads: 16, num_experts: 8, "
        "experts_per_token: 2, ffn_hidden_size: 4096, vocab_size: 32768, max_positions: 2048}\n"
        "parallel: {framework: megatron-core, tensor_parallel_degree: 1, pipeline_parallel_degree: "
        "1}\n"},
       jobfile::cluster_source("p4d.24xlarge")},
      overrides);
  return std::get<Plan>(search::plan_job(job).best);
}

const EventPeak& event(const std::vector<EventPeak>& events, const std::string& name) {
  const auto found = std::find_if(events.begin(), events.end(),
                                  [&](const EventPeak& one) { return one.event == name; });
  REQUIRE(found != events.end());
  return *found;
}

int64_t term(const EventPeak& peak, const std::string& name) {
  for (const MemoryTerm& one : peak.terms) {
    if (one.name == name) return one.bytes;
  }
  return 0;
}

std::vector<std::string> names(const std::vector<EventPeak>& events) {
  std::vector<std::string> all;
  for (const EventPeak& one : events) all.push_back(one.event);
  return all;
}

}  // namespace

TEST_CASE("events of a run: the terms of each are its bytes, and the plan's peak is among them") {
  for (const Plan& plan : {test::practical_plan_of(test::small_job()), experts_plan()}) {
    const std::vector<EventPeak> events = event_peaks(plan, 0, 0, 1);
    CHECK(names(events) == std::vector<std::string>{
                               "load and initialisation", "first step, forward",
                               "first step, backward", "first step, update", "second step, forward",
                               "second step, backward", "evaluation", "checkpoint save"});
    for (const EventPeak& one : events) {
      CAPTURE(one.event);
      int64_t sum = 0;
      for (const MemoryTerm& each : one.terms) sum += each.bytes;
      CHECK(sum == one.bytes);
    }
    // Rounded term by term.
    CHECK(std::abs(largest_of(events).bytes - plan.predictions.ranks.front().peak_bytes) < 32);
  }
}

TEST_CASE(
    "the optimizer's states exist from the first update on, and in our engine from the start") {
  const std::vector<EventPeak> megatron = event_peaks(experts_plan(), 0, 0, 1);
  CHECK(term(event(megatron, "load and initialisation"), "Adam variance") == 0);
  CHECK(term(event(megatron, "first step, backward"), "Adam variance") == 0);
  CHECK(term(event(megatron, "first step, backward"), "fp32 master weights") > 0);
  CHECK(term(event(megatron, "second step, backward"), "Adam variance") > 0);
  CHECK(event(megatron, "first step, backward").bytes <
        event(megatron, "second step, backward").bytes);
  const std::vector<EventPeak> engine =
      event_peaks(test::practical_plan_of(test::small_job()), 0, 0, 1);
  CHECK(term(event(engine, "load and initialisation"), "Adam variance") > 0);
  CHECK(event(engine, "first step, backward").bytes ==
        event(engine, "second step, backward").bytes);
}

TEST_CASE("an evaluation keeps no activations for a backward pass") {
  const std::vector<EventPeak> events = event_peaks(experts_plan(), 0, 0, 1);
  const EventPeak& evaluation = event(events, "evaluation");
  CHECK(term(evaluation, "activations kept") == 0);
  CHECK(term(evaluation, "one layer's forward") > 0);
  CHECK(evaluation.bytes < event(events, "second step, forward").bytes);
}

TEST_CASE("an imbalance of experts grows their activations alone, in proportion to the tokens") {
  const Plan plan = experts_plan();
  const auto extra = [&](double imbalance) {
    const std::vector<EventPeak> events = event_peaks(plan, 0, 0, imbalance);
    const EventPeak& peak = event(events, "imbalance of backward");
    CHECK(peak.bytes - event(events, "second step, backward").bytes ==
          term(peak, "tokens of the other ranks"));
    return static_cast<double>(term(peak, "tokens of the other ranks"));
  };
  // Megatron's routers fill the fullest rank 1.3 times without any.
  CHECK(extra(1.2) == 0);
  CHECK(extra(1.5) > 0);
  CHECK(extra(2) == doctest::Approx(0.7 / 0.2 * extra(1.5)).epsilon(1e-6));
  // A capacity cuts it off.
  Plan capped = plan;
  capped.job.model.expert_capacity_factor = 1.5;
  CHECK(term(event(event_peaks(capped, 0, 0, 4), "imbalance of backward"),
             "tokens of the other ranks") == extra(1.5));
  // A dense model has no experts.
  CHECK(event_peaks(test::practical_plan_of(test::small_job()), 0, 0, 2).size() == 8);
}
