#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/text/json.h"
#include "smp/planner/report/checked_file.h"

namespace smp::report {
namespace {

// Rules of outcomes, beside those of traps::rules().
constexpr std::pair<const char*, const char*> kOutcomeRules[] = {
    {"smp/invalid", "the file cannot be planned, or its plan is broken"},
    {"smp/does-not-fit", "the job does not fit in memory"},
    {"smp/import", "what a file of another program asks for, and the job has not"},
    {"smp/tight", "the job fits, but the usual prediction error exceeds the memory"},
};

// As GitHub's toolkit escapes them (actions/toolkit, packages/core/src/command.ts).
std::string escaped(std::string_view text, bool is_property) {
  std::string out;
  for (const char c : text) {
    const bool special =
        c == '%' || c == '\r' || c == '\n' || (is_property && (c == ':' || c == ','));
    if (special) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

// A path as a relative URI (RFC 3986): what is no unreserved character or '/' is percent-encoded.
std::string uri_of(const std::string& path) {
  constexpr std::string_view kPlain = "-._~/";
  std::string out;
  for (const char c : path) {
    const bool alphanumeric =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (alphanumeric || kPlain.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return path.starts_with('/') ? "file://" + out : out;
}

text::OrderedJson rules_json() {
  text::OrderedJson json = text::OrderedJson::array();
  for (const auto& [id, summary] : kOutcomeRules)
    json.push_back({{"id", id}, {"shortDescription", {{"text", summary}}}});
  for (const traps::RuleWords& rule : traps::rules())
    json.push_back({{"id", rule.id}, {"shortDescription", {{"text", rule.summary}}}});
  return json;
}

text::OrderedJson result_json(const CheckedFile& file, const CheckRemark& remark) {
  const text::OrderedJson region = {{"startLine", remark.line}, {"startColumn", remark.column}};
  const text::OrderedJson place = {
      {"physicalLocation",
       {{"artifactLocation", {{"uri", uri_of(file.path)}}}, {"region", region}}}};
  return {{"ruleId", remark.id},
          {"level", remark.is_error ? "error" : "warning"},
          {"message", {{"text", remark.text}}},
          {"locations", text::OrderedJson::array({place})}};
}

}  // namespace

std::string_view name_of(CheckOutcome outcome) {
  switch (outcome) {
    case CheckOutcome::kFits: return "fits";
    case CheckOutcome::kTight: return "tight";
    case CheckOutcome::kNo: return "no";
    case CheckOutcome::kInvalid: return "invalid";
  }
  check_failed(__FILE__, __LINE__, "unknown outcome");
}

ExitCode exit_code_of(const CheckedFile& file, FailOn fail_on) {
  switch (file.outcome) {
    case CheckOutcome::kInvalid: return ExitCode::kBadConfig;
    case CheckOutcome::kNo: return ExitCode::kNoFeasiblePlan;
    case CheckOutcome::kTight:
      if (fail_on != FailOn::kNo) return ExitCode::kTightPlan;
      break;
    case CheckOutcome::kFits: break;
  }
  const bool warned = std::any_of(file.remarks.begin(), file.remarks.end(),
                                  [](const CheckRemark& remark) { return !remark.is_error; });
  return warned && fail_on == FailOn::kWarning ? ExitCode::kPlanWarnings : ExitCode::kOk;
}

ExitCode worst_exit_code(const std::vector<CheckedFile>& files, FailOn fail_on) {
  ExitCode worst = ExitCode::kOk;
  for (const CheckedFile& file : files) {
    const ExitCode code = exit_code_of(file, fail_on);
    // Of the codes other than 0, the lower is the worse.
    if (code != ExitCode::kOk && (worst == ExitCode::kOk || code < worst)) worst = code;
  }
  return worst;
}

std::string remark_line(const CheckedFile& file, const CheckRemark& remark) {
  return fmt::format("{}:{}:{}: {} {}: {}\n", file.path, remark.line, remark.column,
                     remark.is_error ? "error" : "warning", remark.id, remark.text);
}

std::string github_annotations(const std::vector<CheckedFile>& files) {
  std::string text;
  for (const CheckedFile& file : files) {
    for (const CheckRemark& remark : file.remarks) {
      text +=
          fmt::format("::{} file={},line={},col={},title={}::{}\n",
                      remark.is_error ? "error" : "warning", escaped(file.path, true), remark.line,
                      remark.column, escaped(remark.id, true), escaped(remark.text, false));
    }
  }
  return text;
}

std::string sarif(const std::vector<CheckedFile>& files) {
  text::OrderedJson results = text::OrderedJson::array();
  for (const CheckedFile& file : files) {
    for (const CheckRemark& remark : file.remarks) results.push_back(result_json(file, remark));
  }
  const text::OrderedJson driver = {
      {"name", "smp-plan"}, {"version", "0.1.0"}, {"rules", rules_json()}};
  const text::OrderedJson run = {{"tool", {{"driver", driver}}},
                                 {"columnKind", "utf16CodeUnits"},
                                 {"results", std::move(results)}};
  const text::OrderedJson json = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                                  {"version", "2.1.0"},
                                  {"runs", text::OrderedJson::array({run})}};
  return json.dump(2) + "\n";
}

}  // namespace smp::report
