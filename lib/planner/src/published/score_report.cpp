#include <fmt/format.h>

#include <cmath>

#include "smp/plan/text/json.h"
#include "smp/planner/published/score.h"

namespace smp::published {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string signed_percent(double share) { return fmt::format("{:+.1f} %", share * 100); }

std::string error_cells(const ErrorSummary& errors) {
  if (errors.rows == 0) return fmt::format("{:>5} {:>8} {:>8} {:>8}", "-", "-", "-", "-");
  return fmt::format("{:>5} {:>8} {:>8} {:>8}", errors.rows, signed_percent(errors.signed_median),
                     percent(errors.absolute_median), percent(errors.absolute_p90));
}

std::string line_of(const std::string& name, const ScoreSummary& summary) {
  const std::string tau =
      summary.ranked_pairs > 0 ? fmt::format("{:.2f}", summary.kendall_tau) : "-";
  const std::string regret = summary.groups > 0 ? percent(summary.top_1_regret) : "-";
  return fmt::format(
      "{:<34} {:>5} {:>6}  {}  {}  {:>5} {:>7}  {:>5} {:>5}\n", name, summary.rows,
      fmt::format("{:.0f} %", summary.rows == 0
                                  ? 0.0
                                  : 100.0 * double(summary.expressible) / double(summary.rows)),
      error_cells(summary.memory), error_cells(summary.time), tau, regret,
      fmt::format("{}/{}", summary.false_fits, summary.memory_known - summary.ran),
      fmt::format("{}/{}", summary.false_does_not_fit, summary.ran));
}

std::string file_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::vector<RowScore> all_rows(const std::vector<FileScore>& files) {
  std::vector<RowScore> rows;
  for (const FileScore& file : files) rows.insert(rows.end(), file.rows.begin(), file.rows.end());
  return rows;
}

// Digits that a prediction has at most; the rest would be noise in a diff.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

text::OrderedJson json_of(const RowScore& row) {
  text::OrderedJson json = {
      {"id", row.id}, {"expressible", row.expressible}, {"reason", row.reason}};
  if (!row.expressible) {
    for (const char* key : {"predicted_peak_gib", "predicted_fits", "predicted_step_s", "low",
                            "high", "fit", "step_low_s", "step_high_s"}) {
      json[key] = nullptr;
    }
    return json;
  }
  json["predicted_peak_gib"] = rounded(row.predicted_peak_gib);
  json["predicted_fits"] = row.fit == prediction::Fit::kFits;
  json["predicted_step_s"] = rounded(row.predicted_step_s);
  json["low"] = rounded(row.low_gib);
  json["high"] = rounded(row.high_gib);
  json["fit"] = name_of(row.fit);
  json["step_low_s"] = rounded(row.step_low_s);
  json["step_high_s"] = rounded(row.step_high_s);
  return json;
}

text::OrderedJson json_of(const ErrorSummary& errors) {
  if (errors.rows == 0) {
    return {{"n", 0},
            {"signed_median", nullptr},
            {"absolute_median", nullptr},
            {"absolute_p90", nullptr}};
  }
  return {{"n", errors.rows},
          {"signed_median", rounded(errors.signed_median)},
          {"absolute_median", rounded(errors.absolute_median)},
          {"absolute_p90", rounded(errors.absolute_p90)}};
}

text::OrderedJson json_of(const ScoreSummary& summary) {
  text::OrderedJson json = {
      {"n", summary.rows},
      {"expressible", summary.expressible},
      {"expressible_share",
       summary.rows == 0 ? 0.0 : double(summary.expressible) / double(summary.rows)},
      {"memory", json_of(summary.memory)},
      {"time", json_of(summary.time)}};
  json["kendall_tau"] = summary.ranked_pairs > 0 ? text::OrderedJson(rounded(summary.kendall_tau))
                                                 : text::OrderedJson();
  json["ranked_pairs"] = summary.ranked_pairs;
  json["top_1_regret"] =
      summary.groups > 0 ? text::OrderedJson(rounded(summary.top_1_regret)) : text::OrderedJson();
  json["ranked_groups"] = summary.groups;
  json["ran_out_of_memory"] = summary.memory_known - summary.ran;
  json["false_fits"] = summary.false_fits;
  json["ran"] = summary.ran;
  json["false_does_not_fit"] = summary.false_does_not_fit;
  json["tight_that_ran"] = summary.tight_that_ran;
  return json;
}

}  // namespace

std::string score_text(const std::vector<FileScore>& files) {
  std::string text =
      fmt::format("{:<34} {:>5} {:>6}  {:<32}  {:<32}\n", "", "", "", "memory", "step time");
  text += fmt::format(
      "{:<34} {:>5} {:>6}  {:>5} {:>8} {:>8} {:>8}  {:>5} {:>8} {:>8} {:>8}  {:>5} "
      "{:>7}  {:>5} {:>5}\n",
      "file", "rows", "said", "n", "median", "|median|", "|p90|", "n", "median", "|median|",
      "|p90|", "tau", "regret", "false+", "false-");
  for (const FileScore& file : files) text += line_of(file_name(file.path), file.summary);
  if (files.size() > 1) text += line_of("all", summary_of(all_rows(files)));
  for (const FileScore& file : files) {
    int64_t shown = 0;
    for (const RowScore& row : file.rows) {
      if (row.expressible || ++shown > 8) continue;
      text += fmt::format("{}: not expressible: {}\n", row.id, row.reason);
    }
    if (shown > 8) {
      text += fmt::format("{}: {} more not expressible\n", file_name(file.path), shown - 8);
    }
  }
  return text;
}

std::string score_json(const std::vector<FileScore>& files) {
  text::OrderedJson json = {{"rows", text::OrderedJson::array()}};
  for (const FileScore& file : files) {
    for (const RowScore& row : file.rows) json["rows"].push_back(json_of(row));
  }
  json["summary"] = json_of(files.size() == 1 ? files[0].summary : summary_of(all_rows(files)));
  json["files"] = text::OrderedJson::array();
  for (const FileScore& file : files) {
    text::OrderedJson one = {{"file", file_name(file.path)}};
    one.update(json_of(file.summary));
    json["files"].push_back(one);
  }
  return json.dump(2, ' ', false, text::OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace smp::published
