#include "evaluation.h"

#include "smp/plan/data_files.h"
#include "smp/runtime/run_report.h"

namespace smp {

Evaluation::Evaluation(const Plan& plan, const TextData& data, RankGroups& groups)
    : data_(data),
      groups_(groups),
      every_steps_(plan.job.training.evaluation.every_steps),
      global_batch_(plan.job.training.global_batch.value()),
      batches_(held_out_samples(plan.job.training) / global_batch_) {}

ReadSamples Evaluation::reader() {
  return [this](int64_t step, int64_t first, int64_t count, const SampleBuffers& out) {
    int64_t* tokens = out.integers(BatchField::kTokens);
    int64_t* targets = out.integers(BatchField::kTargets);
    if (reads_held_out_) {
      data_.read_held_out(step * global_batch_ + first, count, tokens, targets);
    } else {
      data_.read(step, first, count, tokens, targets);
    }
  };
}

bool Evaluation::is_due(int64_t done, int64_t steps) const {
  return every_steps_ > 0 && (done % every_steps_ == 0 || done == steps);
}

double Evaluation::loss(Engine& engine) {
  engine.settle();  // what is under way belongs to the step
  const double waited_s = groups_.waited_s();
  const std::vector<TrafficCount> before = groups_.traffic();
  reads_held_out_ = true;
  double sum = 0;
  for (int64_t batch = 0; batch < batches_; ++batch) sum += engine.evaluate(batch);
  reads_held_out_ = false;
  std::vector<TrafficCount> sent = groups_.traffic();
  subtract_traffic(sent, before);
  add_traffic(traffic_, sent);
  waited_s_ += groups_.waited_s() - waited_s;
  return sum / static_cast<double>(batches_);
}

}  // namespace smp
