#include <algorithm>
#include <cmath>

#include "smp/plan/spec/plan.h"
#include "smp/plan/text/json.h"
#include "smp/planner/report/checked_file.h"

namespace smp::report {
namespace {

text::OrderedJson terms_json(const std::vector<MemoryTerm>& terms) {
  text::OrderedJson json = text::OrderedJson::array();
  for (const MemoryTerm& term : terms) {
    json.push_back(
        {{"name", term.name}, {"category", name_of(term.category)}, {"bytes", term.bytes}});
  }
  return json;
}

text::OrderedJson memory_json(const Verdict& verdict) {
  text::OrderedJson events = text::OrderedJson::array();
  const memory::EventPeak& largest = memory::largest_of(verdict.events);
  for (const memory::EventPeak& event : verdict.events) {
    events.push_back({{"event", event.event},
                      {"bytes", event.bytes},
                      {"largest", &event == &largest},
                      {"terms", terms_json(event.terms)}});
  }
  text::OrderedJson json = {{"peak_bytes", verdict.peak_bytes},
                            {"range_bytes", {verdict.low_bytes, verdict.high_bytes}},
                            {"allowed_bytes", nullptr},
                            {"stage", verdict.stage},
                            {"tensor", verdict.tensor},
                            {"phase", verdict.phase},
                            {"terms", terms_json(verdict.terms)},
                            {"events", std::move(events)}};
  if (verdict.allowed_bytes > 0) json["allowed_bytes"] = verdict.allowed_bytes;
  return json;
}

text::OrderedJson file_json(const CheckedFile& file) {
  text::OrderedJson json = {
      {"file", file.path}, {"verdict", name_of(file.outcome)}, {"line", file.line}};
  if (file.verdict) {
    const Verdict& verdict = *file.verdict;
    json["layout"] = verdict.layout;
    json["memory"] = memory_json(verdict);
    if (verdict.step_s > 0) {
      const auto ns = [](double seconds) { return std::llround(seconds * 1e9); };
      text::OrderedJson parts = text::OrderedJson::array();
      for (const TimePartSeconds& part : verdict.parts)
        parts.push_back({{"name", part.name}, {"seconds", part.seconds}});
      json["step"] = {{"seconds", verdict.step_s},
                      {"range_seconds", {verdict.low_s, verdict.high_s}},
                      {"step_ns", ns(verdict.step_s)},
                      {"bound_by", verdict.bound_by},
                      {"parts", std::move(parts)}};
    }
    if (verdict.mfu) json["mfu"] = *verdict.mfu;
  }
  json["errors"] = text::OrderedJson::array();
  json["warnings"] = text::OrderedJson::array();
  for (const CheckRemark& remark : file.remarks) {
    json[remark.is_error ? "errors" : "warnings"].push_back({{"id", remark.id},
                                                             {"text", remark.text},
                                                             {"file", file.path},
                                                             {"line", remark.line},
                                                             {"column", remark.column}});
  }
  if (!file.changes.empty()) json["changes"] = file.changes;
  return json;
}

}  // namespace

std::string checked_json(const std::vector<CheckedFile>& files) {
  if (files.size() == 1) return file_json(files.front()).dump(2) + "\n";
  CheckOutcome worst = CheckOutcome::kFits;
  text::OrderedJson list = text::OrderedJson::array();
  for (const CheckedFile& file : files) {
    worst = std::max(worst, file.outcome);
    list.push_back(file_json(file));
  }
  const text::OrderedJson json = {{"verdict", name_of(worst)}, {"files", std::move(list)}};
  return json.dump(2) + "\n";
}

}  // namespace smp::report
