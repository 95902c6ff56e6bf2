#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "smp/runtime/record/router_metrics.h"

// The metrics of each step: a line of metrics.jsonl and the step line on rank 0's stdout. Used by
// one thread.
namespace smp::record {

// The loss of one evaluation set.
struct SetLoss {
  std::string set;  // its name; empty: held out from the training data
  double loss = 0;
};

// The number of passes over a source of the data.
struct SourceEpoch {
  std::string source;
  double epoch = 0;
};

struct StepMetrics {
  int64_t step = 0;  // from 1: steps done
  double loss = 0;
  std::vector<double> further_losses;  // of layers that predict further tokens; not in `loss`
  double grad_norm = 0;
  double learning_rate = 0;
  // fp16 only: the factor of the loss, and the number of steps so far that were skipped because
  // their gradients overflowed.
  std::optional<double> loss_scale;
  int64_t skipped_steps = 0;
  std::optional<double> evaluation_loss;   // of held-out data, if evaluated after this step
  std::vector<SetLoss> evaluation_losses;  // of each named set; evaluation_loss is the first one's
  std::optional<double> accuracy;          // of that evaluation, if samples are classified
  int64_t tokens_seen = 0;                 // of all steps so far
  std::vector<SourceEpoch> epochs;         // of each source of tokens; of images none
  double tokens_per_s = 0;
  // Model flops utilization: the flops that the model needs (smp/plan/model/model_flops.h) over
  // those that all accelerators could do in the step's time. None if the cluster states no rate.
  std::optional<double> mfu;
  double step_s = 0;
  double exposed_s = 0;  // part of step_s, on rank 0: collectives that computing did not hide
  int64_t memory_live_bytes = 0;
  int64_t memory_peak_bytes = 0;
  // On GPUs only: how often the allocator had to free its cache in this step (alloc retries).
  std::optional<int64_t> cache_flushes;
  std::vector<RouterMetrics> routers;  // by layer with experts
};
// Numbers of tokens by expert that a line of metrics.jsonl has in every step; more of them it has
// in each kRareTokensPerExpert-th.
inline constexpr size_t kMostTokensPerExpert = 1024;
inline constexpr int64_t kRareTokensPerExpert = 100;

std::string to_json(const StepMetrics& metrics);  // one line, without its end

// Appends whole lines, one write each, so that a reader never sees part of a line.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void append(const StepMetrics& metrics);

 private:
  std::string path_;
  int fd_ = -1;
};

// Removes the lines after `step` from metrics.jsonl: a run that resumes from `step` writes them
// again. Does nothing if there is no such file.
void cut_metrics(const std::string& path, int64_t step);

// "step  20/200  loss 2.7312  grad norm 1.04  12,345 tokens/s  memory 23.4 MiB  3 s left"; with
// fp16 "loss scale 65536, 2 skipped" after the norm, and after an evaluation "held out 2.8105,
// perplexity 16.6". "MFU 41.2 %" follows the tokens if it is known. "8 % exposed" follows if
// communication takes kShownExposure of the step or more. A line longer than kMostColumns loses
// memory first, then exposure, MFU and the time left. A terminal (`columns` wide) shows one line
// that is rewritten. A file (columns 0) gets a line for step 1, every `every` steps, the last step,
// and the first step after 30 s without a line.
class StepLine {
 public:
  static constexpr double kLongestSilenceS = 30;
  static constexpr double kShownExposure = 0.05;
  static constexpr size_t kMostColumns = 100;

  StepLine(std::FILE* out, int64_t steps, int64_t every, int columns);
  ~StepLine();  // ends the terminal's line

  void show(const StepMetrics& metrics);

 private:
  std::FILE* out_;
  int64_t steps_;
  int64_t every_;
  int columns_;
  bool open_ = false;  // a line without its end
  double mean_step_s_ = 0;
  double silent_s_ = 0;  // since the last line
};

std::string step_line(const StepMetrics& metrics, int64_t steps, double seconds_left);

}  // namespace smp::record
