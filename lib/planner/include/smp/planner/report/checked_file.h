#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/plan/base/exit_code.h"
#include "smp/planner/report/verdict.h"

// The answers of `smp-plan check` for the files of one command line, and the forms in which CI
// systems read them. Pure; any thread.
namespace smp::report {

enum class CheckOutcome { kFits, kTight, kNo, kInvalid };
std::string_view name_of(CheckOutcome outcome);  // "fits", "tight", "no", "invalid"

// One remark at a place of the file; lines and columns count from 1.
struct CheckRemark {
  std::string id;  // of a rule; "smp/invalid", "smp/does-not-fit", "smp/tight" of an outcome
  std::string text;
  int line = 1;
  int column = 1;
  bool is_error = false;
};

struct CheckedFile {
  std::string path;
  CheckOutcome outcome = CheckOutcome::kFits;
  std::string line;                  // without the path
  std::vector<CheckRemark> remarks;  // the outcome's, where it is not kFits; then warnings
  std::optional<Verdict> verdict;    // where there is a plan
  std::vector<std::string> changes;  // of kNo: single changes that would make it fit
};

enum class FailOn { kWarning, kTight, kNo };
// kOk, kBadConfig, kNoFeasiblePlan, kTightPlan, kPlanWarnings; of several files the worst, in the
// order invalid, no, tight, warnings.
ExitCode exit_code_of(const CheckedFile& file, FailOn fail_on);
ExitCode worst_exit_code(const std::vector<CheckedFile>& files, FailOn fail_on);

// "job.yaml:3:5: warning smp/kv-heads-replicated: ...".
std::string remark_line(const CheckedFile& file, const CheckRemark& remark);
// Of one file its object; of several one object with the worst verdict and the list `files`.
std::string checked_json(const std::vector<CheckedFile>& files);
// Workflow commands of GitHub Actions: a line a remark.
std::string github_annotations(const std::vector<CheckedFile>& files);
// A SARIF 2.1.0 document.
std::string sarif(const std::vector<CheckedFile>& files);

}  // namespace smp::report
