#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/prediction/fit.h"

// Predicts every run of a table of published runs with what is shipped, and says how far off the
// predictions are. The columns and what empty cells mean: docs/scoring.md. A prediction never reads
// a measured column: tables without them give the same predictions. Any thread.
namespace smp::published {

struct RowScore {
  std::string id;
  bool expressible = false;
  std::string reason;  // why not; or what was assumed where the table says nothing
  double predicted_peak_gib = 0;
  double low_gib = 0, high_gib = 0;
  prediction::Fit fit = prediction::Fit::kNo;
  double predicted_step_s = 0;
  double step_low_s = 0, step_high_s = 0;
  // What the table measured, in the units of the predictions; empty where it cannot be compared.
  std::optional<double> measured_peak_gib;
  std::optional<double> measured_step_s;
  std::optional<bool> measured_fits;
  bool left_out = false;       // of the statistics: the table itself doubts this row
  std::string group;           // runs of one model on as many accelerators are ranked together
  double tokens_per_step = 0;  // of one accelerator
};

struct ErrorSummary {  // shares: 0.05 = 5 %
  int64_t rows = 0;
  double signed_median = 0;
  double absolute_median = 0;
  double absolute_p90 = 0;
};

struct ScoreSummary {
  int64_t rows = 0;
  int64_t expressible = 0;
  ErrorSummary memory;
  ErrorSummary time;
  int64_t ranked_pairs = 0;
  double kendall_tau = 0;    // over all pairs within groups
  int64_t groups = 0;        // of three runs and more
  double top_1_regret = 0;   // mean over groups: time of our choice / time of the best - 1
  int64_t memory_known = 0;  // rows that say whether they ran
  int64_t false_fits = 0;    // predicted to fit, ran out of memory
  int64_t ran = 0;
  int64_t false_does_not_fit = 0;  // predicted tight or not to fit, ran
};
ScoreSummary summary_of(const std::vector<RowScore>& rows);

struct FileScore {
  std::string path;
  std::vector<RowScore> rows;
  ScoreSummary summary;
};

// Throws ConfigError: no such file, broken CSV, or a table without the columns that are needed.
// `framework` prices all rows; without it each row is priced as the framework that it names.
FileScore score_file(const std::string& path, const std::optional<FrameworkChoice>& framework);
FileScore score_table(const std::string& path, const std::string& text,
                      const std::optional<FrameworkChoice>& framework);

std::string score_text(const std::vector<FileScore>& files);
std::string score_json(const std::vector<FileScore>& files);

}  // namespace smp::published
