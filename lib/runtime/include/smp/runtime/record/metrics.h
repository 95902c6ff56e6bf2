#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

// What a run says of each step: a line of metrics.jsonl and the step line on rank 0's stdout.
// Used by one thread.
namespace smp::record {

// The loss of one of several sets that are evaluated on.
struct SetLoss {
  std::string set;  // its name; empty: a part of what is trained on
  double loss = 0;
};

// How often a source of the data was seen whole.
struct SourceEpoch {
  std::string source;
  double epoch = 0;
};

struct StepMetrics {
  int64_t step = 0;  // from 1: steps done
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  // fp16 alone: what the loss was multiplied with, and the steps so far whose gradients overflowed
  // and that therefore updated nothing.
  std::optional<double> loss_scale;
  int64_t skipped_steps = 0;
  std::optional<double> evaluation_loss;  // of held-out data, where it was taken after this step
  std::vector<SetLoss>
      evaluation_losses;            // of named sets, each; evaluation_loss is the first one's
  std::optional<double> accuracy;   // of these, where samples are classified
  int64_t tokens_seen = 0;          // of all steps so far
  std::vector<SourceEpoch> epochs;  // of each source of tokens; of images none
  double tokens_per_s = 0;
  // Model flops utilization: the flops that the model needs (smp/plan/model/model_flops.h), of
  // those that all accelerators could do in the step's time. None where the cluster does not state
  // its rate.
  std::optional<double> mfu;
  double step_s = 0;
  double exposed_s = 0;  // of step_s, on rank 0: collectives that computing did not hide
  int64_t memory_live_bytes = 0;
  int64_t memory_peak_bytes = 0;
  // On GPUs alone: how often in this step the allocator had to give back what it kept for later.
  std::optional<int64_t> cache_flushes;
};
std::string to_json(const StepMetrics& metrics);  // one line, without its end

// Appends whole lines, one write each, so that a reader never sees half of one.
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

// Takes the lines of later steps out of metrics.jsonl: a run that goes on from `step` writes them
// again. Does nothing when there is no such file.
void cut_metrics(const std::string& path, int64_t step);

// "step  20/200  loss 2.7312  grad norm 1.04  12,345 tokens/s  memory 23.4 MiB  3 s left"; with
// fp16 "loss scale 65536, 2 skipped" after the norm, and after an evaluation "held out 2.8105,
// perplexity 16.6". "MFU 41.2 %" follows the tokens where it is known, then "8 % exposed", of the
// step, where communication takes kShownExposure and more. What would make the line longer than
// kMostColumns is left out: memory first, then exposure, MFU, the time left. On a terminal of so
// many columns one line is rewritten; in a file (columns 0) there is a line for step 1, every
// `every` steps and the last one, and for the first step after 30 s without one.
class StepLine {
 public:
  static constexpr double kLongestSilenceS = 30;
  static constexpr double kShownExposure = 0.05;
  static constexpr size_t kMostColumns = 100;

  StepLine(std::FILE* out, int64_t steps, int64_t every, int columns);
  ~StepLine();  // leaves the terminal on a fresh line

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
