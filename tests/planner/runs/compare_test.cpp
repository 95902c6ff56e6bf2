#include "smp/planner/runs/compare.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "planner/run_samples.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

using namespace smp;
using namespace smp::runs;
using namespace smp::text;

namespace {

RunReport report(const Json& json) { return parse_run_report("r.json", json.dump()); }

std::string error_of(const std::string& text) {
  try {
    parse_run_report("r.json", text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("compare: within and beyond the limits") {
  const Plan plan = small_plan();
  const ComparisonLimits limits{0.1, 0.2};
  const Comparison good = compare(plan, report(report_of(plan, 1.0, 1.0)), limits);
  CHECK(good.problems.empty());
  CHECK(good.worst_memory_error() == 0);
  CHECK(good.step.error() == doctest::Approx(0));
  for (const Compared& row : good.ranks[0].wire) CHECK(row.error() == 0);

  const Comparison bad = compare(plan, report(report_of(plan, 0.8, 2.0)), limits);
  REQUIRE(bad.problems.size() == 3);
  CHECK(bad.problems[0] == "peak of rank 0 is 25.0 % off, more than 10.0 %");
  CHECK(bad.problems[1] == "peak of rank 1 is 25.0 % off, more than 10.0 %");
  CHECK(bad.problems[2] == "step time is 50.0 % off, more than 20.0 %");
  CHECK(compare(plan, report(report_of(plan, 0.8, 2.0)), {}).problems.empty());
  CHECK(comparison_text(bad).find("step time is 50.0 % off, more than 20.0 %\n") !=
        std::string::npos);
}

TEST_CASE("compare: a step time that was not predicted is unknown, and no error of 100 %") {
  Plan plan = small_plan();
  const Json measured = report_of(plan, 1, 1);
  plan.predictions.step_ns = 0;
  const Comparison comparison = compare(plan, report(measured), {{}, 0.2});
  REQUIRE(comparison.problems.size() == 1);
  CHECK(comparison.problems[0] ==
        "step time cannot be compared: the plan has no prediction, as its cluster names no rates");
  const std::string text = comparison_text(comparison);
  CHECK(text.find("step time                               unknown ") != text.npos);
  CHECK(text.find("-0.0 %") == text.npos);
  const auto json = Json::parse(comparison_json(comparison));
  CHECK(json.at("step_s").at("predicted").is_null());
  CHECK(json.at("step_s").at("error").is_null());
}

TEST_CASE("compare: a report of another layout, and JSON for programs") {
  const Plan plan = small_plan();
  Json other = report_of(plan, 1, 1);
  other["plan"]["tensor_parallel_degree"] = 2;
  CHECK_THROWS_WITH_AS(compare(plan, report(other), {}),
                       "r.json: the run has pipeline 2 x tensor 2 x shard 1 x replica 1, but the "
                       "plan has pipeline 2 x tensor 1 x shard 1 x replica 1",
                       ConfigError);
  const auto json = Json::parse(comparison_json(compare(plan, report(report_of(plan, 1, 1)), {})));
  CHECK(json.at("ranks").size() == 2);
  CHECK(json.at("ranks")[0].at("peak_bytes").at("predicted") ==
        double(plan.predictions.ranks[0].peak_bytes));
  CHECK(json.at("problems").empty());
}

TEST_CASE("compare: ranks that the plan does not have are named with their place") {
  const Plan plan = small_plan();
  const auto refused = [&](const Json& json, const std::string& why) {
    CHECK_THROWS_WITH_AS(compare(plan, report(json), {}), why.c_str(), ConfigError);
  };
  Json json = report_of(plan, 1, 1);
  json["ranks"][1]["rank"] = 7;
  refused(json, "r.json: ranks[1]: rank 7: the plan has ranks 0 to 1");
  json["ranks"][1]["rank"] = int64_t{1} << 60;
  refused(json, "r.json: ranks[1]: rank 1152921504606846976: the plan has ranks 0 to 1");
  json["ranks"][1]["rank"] = 0;
  refused(json, "r.json: ranks[1]: rank 0: appears twice");
  json = report_of(plan, 1, 1);
  json["ranks"][1]["coordinates"]["pipeline"] = 0;
  refused(json,
          "r.json: ranks[1]: rank 1 is stage 0, tensor rank 0 in the report, but stage 1, tensor "
          "rank 0 in the plan");
  json["ranks"][1]["rank"] = -1;
  CHECK(error_of(json.dump()) == "r.json: 'rank' is not a whole number");
  json = report_of(plan, 1, 1);
  json["steps"] = int64_t{1} << 60;  // the bytes of so many steps are more than 2^63
  CHECK(compare(plan, report(json), {}).ranks[0].wire[0].predicted > 0x1p60);
}

TEST_CASE("compare: what is no report of a run") {
  const Plan plan = small_plan();
  CHECK(error_of("{") == "r.json: not valid JSON: error at byte 2");
  CHECK(error_of("# A plan\nsmp_plan: 2\n") ==
        "r.json: this is a plan; name the report.json in the folder of its run");
  CHECK(error_of("{}") == "r.json: not the report of a run: 'plan' is missing");
  CHECK(error_of("[]") == "r.json: not the report of a run: 'plan' is missing");
  Json json = report_of(plan, 1, 1);
  json["measured_step_s"] = 0;
  CHECK(error_of(json.dump()) == "r.json: the run made no step");
  json["measured_step_s"] = "fast";
  CHECK(error_of(json.dump()) == "r.json: 'measured_step_s' is not a number");
  json = report_of(plan, 1, 1);
  json["ranks"][0]["measured_peak_bytes"] = 1.5;
  CHECK(error_of(json.dump()) == "r.json: 'measured_peak_bytes' is not a whole number");
  json["ranks"] = 3;
  CHECK(error_of(json.dump()) == "r.json: 'ranks' is not a list");
}
