#include "checked.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "files.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/key_places.h"
#include "smp/planner/search/check_plan.h"
#include "smp/planner/search/search.h"

namespace smp {
namespace {

using report::CheckedFile;
using report::CheckOutcome;
using report::CheckRemark;

// "12:5: message" -> the place and the message.
std::optional<CheckRemark> placed(std::string_view text) {
  CheckRemark remark{"smp/invalid", "", 1, 1, true};
  for (int* number : {&remark.line, &remark.column}) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    if (error != std::errc() || end == text.data() + text.size() || *end != ':')
      return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  }
  remark.text = text.substr(std::min(text.find_first_not_of(' '), text.size()));
  return remark;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The errors of a reader stand at the lines that begin with the file's name; another text is an
// error of the key that it begins with, or of the whole file.
std::vector<CheckRemark> remarks_of_error(const std::string& text,
                                          const jobfile::JobSource& source) {
  std::vector<CheckRemark> remarks;
  const std::string prefix = source.path + ":";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.starts_with(prefix)) {
      if (auto remark = placed(line.substr(prefix.size()))) remarks.push_back(std::move(*remark));
    }
    at = end + 1;
  }
  if (!remarks.empty()) return remarks;
  const std::string key = text.substr(0, std::min(text.find_first_of(": "), text.size()));
  const jobfile::KeyPlace place = jobfile::KeyPlaces(source).of(key);
  std::string message = text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  message.erase(0, std::min(message.find_first_not_of(' '), message.size()));
  return {{"smp/invalid", message, place.line, place.column, true}};
}

CheckedFile invalid(const std::string& text, const jobfile::JobSource& source) {
  CheckedFile file;
  file.path = source.path;
  file.outcome = CheckOutcome::kInvalid;
  file.remarks = remarks_of_error(text, source);
  const size_t count = file.remarks.size();
  const CheckRemark& first = file.remarks.front();
  const std::string place =
      first.line == 1 && first.column == 1 ? "" : fmt::format("{}:{}: ", first.line, first.column);
  file.line = fmt::format("invalid: {}{}{}", place, first_line(first.text),
                          count > 1 ? fmt::format("; and {} more", count - 1) : "");
  return file;
}

CheckedFile does_not_fit(const std::string& problem, std::vector<std::string> changes,
                         const jobfile::JobSource& source) {
  CheckedFile file;
  file.path = source.path;
  file.outcome = CheckOutcome::kNo;
  file.line = "no: " + problem;
  if (!changes.empty()) file.line += "; the smallest change that fits: " + changes.front();
  const jobfile::KeyPlace place = jobfile::KeyPlaces(source).of("parallel");
  file.remarks.push_back({"smp/does-not-fit", file.line.substr(4), place.line, place.column, true});
  file.changes = std::move(changes);
  return file;
}

CheckOutcome outcome_of(prediction::Fit fit) {
  switch (fit) {
    case prediction::Fit::kFits: return CheckOutcome::kFits;
    case prediction::Fit::kTight: return CheckOutcome::kTight;
    case prediction::Fit::kNo: break;
  }
  return CheckOutcome::kNo;
}

CheckedFile checked_plan(const Plan& plan, const jobfile::JobSource& source,
                         const report::VerdictOptions& options) {
  const std::vector<std::string> problems = search::check(plan);
  // A broken plan has no price.
  report::Verdict verdict;
  try {
    verdict = report::verdict_of(plan, options);
  } catch (const ConfigError&) {
    if (problems.empty()) throw;
    return invalid(problems.front(), source);
  }
  if (!problems.empty() && verdict.fit != prediction::Fit::kNo) {
    CheckedFile file = invalid(problems.front(), source);
    for (size_t i = 1; i < problems.size(); ++i)
      file.remarks.push_back({"smp/invalid", problems[i], 1, 1, true});
    return file;
  }
  if (verdict.fit == prediction::Fit::kNo) {
    CheckedFile file = does_not_fit(
        problems.empty() ? report::verdict_line(verdict).substr(4) : problems.front(), {}, source);
    file.verdict = std::move(verdict);
    return file;
  }
  const jobfile::KeyPlaces places(source);
  CheckedFile file;
  file.path = source.path;
  file.outcome = outcome_of(verdict.fit);
  file.line = report::verdict_line(verdict);
  const auto remark = [&](std::string id, std::string_view key, std::string text) {
    const jobfile::KeyPlace place = places.of(key);
    file.remarks.push_back({std::move(id), std::move(text), place.line, place.column, false});
  };
  if (verdict.fit == prediction::Fit::kTight)
    remark("smp/tight", "cluster.memory_per_process", report::tight_text(verdict));
  for (const traps::Trap& trap : verdict.warnings) remark(trap.id, trap.key, trap.text);
  file.verdict = std::move(verdict);
  return file;
}

CheckedFile checked_job_or_plan(const PlannableFile& file, const jobfile::JobSource& source,
                                const report::VerdictOptions& options) {
  if (const Plan* plan = std::get_if<Plan>(&file)) return checked_plan(*plan, source, options);
  search::SearchResult result = search::plan_job(std::get<JobSpec>(file));
  if (const Plan* plan = std::get_if<Plan>(&result.best))
    return checked_plan(*plan, source, options);
  search::Infeasible& none = std::get<search::Infeasible>(result.best);
  return does_not_fit(none.problem, std::move(none.changes), source);
}

// A warning without a place, or with one in another file, stands at the head of this one.
void add_import_warnings(CheckedFile& file, const std::vector<std::string>& warnings) {
  const std::string prefix = file.path + ":";
  for (const std::string& warning : warnings) {
    const bool is_own = warning.starts_with(prefix);
    CheckRemark remark{"", is_own ? warning.substr(prefix.size() + 1) : warning};
    if (is_own) {
      if (const auto at = placed(std::string_view(warning).substr(prefix.size()))) remark = *at;
    }
    remark.id = "smp/import";
    remark.is_error = false;
    file.remarks.push_back(std::move(remark));
  }
}

}  // namespace

report::CheckedFile checked_file(const std::string& path, const importers::AnyFiles& more,
                                 const report::VerdictOptions& options, LocalRates& local) {
  jobfile::JobSource source{path, ""};
  std::vector<std::string> warnings;
  CheckedFile checked;
  try {
    PlannableFile file = read_plannable(path, source, local, warnings, more);
    checked = checked_job_or_plan(file, source, options);
  } catch (const ConfigError& error) {
    checked = invalid(error.what(), source);
  }
  add_import_warnings(checked, warnings);
  return checked;
}

}  // namespace smp
