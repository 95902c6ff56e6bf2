#include "smp/planner/report/checked_file.h"

#include <doctest/doctest.h>

#include "smp/plan/text/json.h"

using namespace smp;
using namespace smp::report;

namespace {

CheckedFile file(CheckOutcome outcome, int warnings = 0) {
  CheckedFile made;
  made.path = "a b/job,1.yaml";
  made.outcome = outcome;
  made.line = "x";
  for (int i = 0; i < warnings; ++i)
    made.remarks.push_back({"smp/pipeline-bubble", "50 % of a\nb: c", 3, 5, false});
  return made;
}

}  // namespace

TEST_CASE("each outcome has a code, --fail-on says which, and the worst counts") {
  CHECK(exit_code_of(file(CheckOutcome::kFits), FailOn::kWarning) == ExitCode::kOk);
  CHECK(exit_code_of(file(CheckOutcome::kFits, 1), FailOn::kWarning) == ExitCode::kPlanWarnings);
  CHECK(exit_code_of(file(CheckOutcome::kFits, 1), FailOn::kTight) == ExitCode::kOk);
  CHECK(exit_code_of(file(CheckOutcome::kTight, 1), FailOn::kWarning) == ExitCode::kTightPlan);
  CHECK(exit_code_of(file(CheckOutcome::kTight, 1), FailOn::kTight) == ExitCode::kTightPlan);
  CHECK(exit_code_of(file(CheckOutcome::kTight, 1), FailOn::kNo) == ExitCode::kOk);
  for (const FailOn fail_on : {FailOn::kWarning, FailOn::kTight, FailOn::kNo}) {
    CHECK(exit_code_of(file(CheckOutcome::kNo), fail_on) == ExitCode::kNoFeasiblePlan);
    CHECK(exit_code_of(file(CheckOutcome::kInvalid), fail_on) == ExitCode::kBadConfig);
  }
  const CheckedFile fits = file(CheckOutcome::kFits, 1), tight = file(CheckOutcome::kTight),
                    no = file(CheckOutcome::kNo), invalid = file(CheckOutcome::kInvalid);
  CHECK(worst_exit_code({fits, fits}, FailOn::kWarning) == ExitCode::kPlanWarnings);
  CHECK(worst_exit_code({fits, tight}, FailOn::kWarning) == ExitCode::kTightPlan);
  CHECK(worst_exit_code({no, fits, tight}, FailOn::kWarning) == ExitCode::kNoFeasiblePlan);
  CHECK(worst_exit_code({no, invalid, fits}, FailOn::kWarning) == ExitCode::kBadConfig);
  CHECK(worst_exit_code({}, FailOn::kWarning) == ExitCode::kOk);
}

TEST_CASE("GitHub's workflow commands: newlines, per cent and commas are escaped") {
  CHECK(github_annotations({file(CheckOutcome::kFits, 1)}) ==
        "::warning file=a b/job%2C1.yaml,line=3,col=5,title=smp/pipeline-bubble::50 %25 of a%0Ab: "
        "c\n");
  CheckedFile wrong = file(CheckOutcome::kInvalid);
  wrong.remarks.push_back({"smp/invalid", "no", 1, 2, true});
  CHECK(github_annotations({wrong}) ==
        "::error file=a b/job%2C1.yaml,line=1,col=2,title=smp/invalid::no\n");
}

TEST_CASE("a SARIF document names every rule, and each remark with its place") {
  const text::Json document = text::Json::parse(sarif({file(CheckOutcome::kFits, 2)}));
  CHECK(document["version"] == "2.1.0");
  REQUIRE(document["runs"].size() == 1);
  const text::Json& run = document["runs"][0];
  std::vector<std::string> ids;
  for (const text::Json& rule : run["tool"]["driver"]["rules"]) ids.push_back(rule["id"]);
  CHECK(ids.size() == traps::rules().size() + 4);
  REQUIRE(run["results"].size() == 2);
  const text::Json& result = run["results"][0];
  CHECK(std::find(ids.begin(), ids.end(), result["ruleId"]) != ids.end());
  CHECK(result["level"] == "warning");
  const text::Json& place = result["locations"][0]["physicalLocation"];
  CHECK(place["artifactLocation"]["uri"] == "a%20b/job%2C1.yaml");
  CHECK(place["region"] == text::Json{{"startLine", 3}, {"startColumn", 5}});
}

TEST_CASE("JSON of one file is its object, of several a list with the worst verdict") {
  CHECK(text::Json::parse(checked_json({file(CheckOutcome::kFits)}))["verdict"] == "fits");
  const text::Json two =
      text::Json::parse(checked_json({file(CheckOutcome::kNo), file(CheckOutcome::kTight, 1)}));
  CHECK(two["verdict"] == "no");
  REQUIRE(two["files"].size() == 2);
  CHECK(two["files"][1]["warnings"][0] == text::Json{{"id", "smp/pipeline-bubble"},
                                                     {"text", "50 % of a\nb: c"},
                                                     {"file", "a b/job,1.yaml"},
                                                     {"line", 3},
                                                     {"column", 5}});
}
