#include "training/step_reporter.h"

#include <algorithm>
#include <filesystem>

#include "smp/plan/runinfo/run_files.h"
#include "tensorboard/event_log.h"

namespace smp::training {

StepReporter::StepReporter(const Plan& plan, const TrainOptions& options, int64_t rank,
                           int64_t first_step, int64_t steps) {
  if (rank != 0) return;
  const std::vector<std::string>& metrics = plan.job.training.metrics;
  const auto is_wanted = [&](const char* kind) {
    return std::find(metrics.begin(), metrics.end(), kind) != metrics.end();
  };
  if (!options.run_dir.empty()) {
    std::filesystem::create_directories(options.run_dir);
    if (is_wanted("jsonl")) {
      file_ = std::make_unique<record::MetricsFile>(options.run_dir + "/metrics.jsonl");
    }
    if (is_wanted("tensorboard")) {
      events_ = std::make_unique<tensorboard::EventLog>(
          options.run_dir + "/" + runinfo::kTensorBoardFolder, plan, first_step);
    }
  }
  if (options.progress != nullptr) {
    line_ = std::make_unique<record::StepLine>(
        options.progress, steps, std::max<int64_t>(1, steps / 20), options.progress_columns);
  }
}

StepReporter::~StepReporter() = default;

void StepReporter::report(const record::StepMetrics& metrics) {
  if (file_) file_->append(metrics);
  if (events_) events_->add(metrics);
  if (line_) line_->show(metrics);
}

void StepReporter::end(int64_t done) {
  if (events_) events_->end(done);
}

}  // namespace smp::training
