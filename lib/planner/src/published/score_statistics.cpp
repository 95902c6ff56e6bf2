#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "smp/planner/published/score.h"

namespace smp::published {
namespace {

constexpr size_t kSmallestGroup = 3;

// Of sorted values, as the mean of the two in the middle or by the nearest rank.
double median(const std::vector<double>& sorted) {
  const size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double percentile(const std::vector<double>& sorted, double share) {
  const double rank = std::ceil(share * double(sorted.size()));
  return sorted[static_cast<size_t>(std::max(1.0, rank)) - 1];
}

ErrorSummary errors_of(std::vector<double> errors) {
  ErrorSummary summary;
  summary.rows = static_cast<int64_t>(errors.size());
  if (errors.empty()) return summary;
  std::sort(errors.begin(), errors.end());
  summary.signed_median = median(errors);
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  summary.absolute_median = median(errors);
  summary.absolute_p90 = percentile(errors, 0.9);
  return summary;
}

// A layout of a group: seconds of a million tokens of one accelerator, so that runs of other
// batches compare.
struct Layout {
  double predicted = 0;
  double measured = 0;
};

// Runs of one layout that the table repeats count once, at the mean of their times: what lies
// between them is noise, which no prediction can rank.
std::vector<Layout> layouts_of(const std::vector<const RowScore*>& group) {
  std::map<double, std::vector<double>> measured;  // by predicted
  for (const RowScore* row : group) {
    const double tokens = row->tokens_per_step / 1e6;
    measured[row->predicted_step_s / tokens].push_back(*row->measured_step_s / tokens);
  }
  std::vector<Layout> layouts;
  for (const auto& [predicted, times] : measured) {
    layouts.push_back({predicted, std::accumulate(times.begin(), times.end(), 0.0) /
                                      static_cast<double>(times.size())});
  }
  return layouts;
}

// `layouts` are sorted by what is predicted.
void rank(const std::vector<Layout>& layouts, int64_t& concordant, int64_t& pairs) {
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (size_t j = i + 1; j < layouts.size(); ++j) {
      const double slower = layouts[j].measured - layouts[i].measured;
      if (slower == 0) continue;  // the table does not order them
      ++pairs;
      concordant += slower > 0 ? 1 : -1;
    }
  }
}

double regret(const std::vector<Layout>& layouts) {
  const auto best =
      std::min_element(layouts.begin(), layouts.end(),
                       [](const Layout& a, const Layout& b) { return a.measured < b.measured; });
  return layouts.front().measured / best->measured - 1;
}

}  // namespace

ScoreSummary summary_of(const std::vector<RowScore>& rows) {
  ScoreSummary summary;
  summary.rows = static_cast<int64_t>(rows.size());
  std::vector<double> memory;
  std::vector<double> time;
  std::map<std::string, std::vector<const RowScore*>> groups;
  for (const RowScore& row : rows) {
    if (!row.expressible) continue;
    ++summary.expressible;
    if (row.left_out) continue;
    if (row.measured_peak_gib && row.measured_fits.value_or(true)) {
      memory.push_back(row.predicted_peak_gib / *row.measured_peak_gib - 1);
    }
    if (row.measured_step_s) {
      time.push_back(row.predicted_step_s / *row.measured_step_s - 1);
      groups[row.group].push_back(&row);
    }
    if (!row.measured_fits) continue;
    ++summary.memory_known;
    if (*row.measured_fits) {
      ++summary.ran;
      if (row.fit == prediction::Fit::kNo) ++summary.false_does_not_fit;
      if (row.fit == prediction::Fit::kTight) ++summary.tight_that_ran;
    } else if (row.fit == prediction::Fit::kFits) {
      ++summary.false_fits;
    }
  }
  summary.memory = errors_of(std::move(memory));
  summary.time = errors_of(std::move(time));
  int64_t concordant = 0;
  double regrets = 0;
  for (const auto& [name, group] : groups) {
    const std::vector<Layout> layouts = layouts_of(group);
    rank(layouts, concordant, summary.ranked_pairs);
    if (layouts.size() < kSmallestGroup) continue;
    ++summary.groups;
    regrets += regret(layouts);
  }
  if (summary.ranked_pairs > 0) {
    summary.kendall_tau = double(concordant) / double(summary.ranked_pairs);
  }
  if (summary.groups > 0) summary.top_1_regret = regrets / double(summary.groups);
  return summary;
}

}  // namespace smp::published
