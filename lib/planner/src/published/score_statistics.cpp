#include <algorithm>
#include <cmath>
#include <map>

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

// Seconds of a million tokens of one accelerator: runs of other batches compare.
double cost(double step_s, const RowScore& row) { return step_s / row.tokens_per_step * 1e6; }

void rank(const std::vector<const RowScore*>& group, int64_t& concordant, int64_t& pairs) {
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = i + 1; j < group.size(); ++j) {
      const double measured =
          cost(*group[i]->measured_step_s, *group[i]) - cost(*group[j]->measured_step_s, *group[j]);
      const double predicted =
          cost(group[i]->predicted_step_s, *group[i]) - cost(group[j]->predicted_step_s, *group[j]);
      if (measured == 0) continue;  // the table does not order them
      ++pairs;
      if (measured * predicted > 0) ++concordant;
      if (measured * predicted < 0) --concordant;
    }
  }
}

double regret(const std::vector<const RowScore*>& group) {
  const auto by = [](auto measure) {
    return [measure](const RowScore* a, const RowScore* b) { return measure(*a) < measure(*b); };
  };
  const auto measured = [](const RowScore& row) { return cost(*row.measured_step_s, row); };
  const auto predicted = [](const RowScore& row) { return cost(row.predicted_step_s, row); };
  const RowScore& best = **std::min_element(group.begin(), group.end(), by(measured));
  const RowScore& ours = **std::min_element(group.begin(), group.end(), by(predicted));
  return measured(ours) / measured(best) - 1;
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
      if (row.fit != prediction::Fit::kFits) ++summary.false_does_not_fit;
    } else if (row.fit == prediction::Fit::kFits) {
      ++summary.false_fits;
    }
  }
  summary.memory = errors_of(std::move(memory));
  summary.time = errors_of(std::move(time));
  int64_t concordant = 0;
  double regrets = 0;
  for (const auto& [name, group] : groups) {
    rank(group, concordant, summary.ranked_pairs);
    if (group.size() < kSmallestGroup) continue;
    ++summary.groups;
    regrets += regret(group);
  }
  if (summary.ranked_pairs > 0) {
    summary.kendall_tau = double(concordant) / double(summary.ranked_pairs);
  }
  if (summary.groups > 0) summary.top_1_regret = regrets / double(summary.groups);
  return summary;
}

}  // namespace smp::published
