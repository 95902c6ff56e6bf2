#include "training/evaluation.h"

#include <fmt/format.h>

#include <utility>

#include "smp/plan/data/data_files.h"
#include "smp/plan/model/operators.h"
#include "smp/runtime/record/run_report.h"

namespace smp::training {

Evaluation::Evaluation(const Plan& plan, const feed::DataSource& data, parallel::RankGroups& groups)
    : data_(data),
      groups_(groups),
      classifies_(model::is_list(plan.job.model)),
      every_steps_(plan.job.training.evaluation.every_steps),
      global_batch_(plan.job.training.global_batch.value()),
      batch_targets_(global_batch_ * (classifies_ ? 1 : plan.job.training.sequence_length)),
      batches_((data::evaluation_samples(plan.job.training) + global_batch_ - 1) / global_batch_) {
  for (std::string& name : data.evaluation_sets()) losses_.push_back({std::move(name), 0});
}

engine::ReadSamples Evaluation::reader(engine::ReadSamples of_steps) {
  return [this, of_steps = std::move(of_steps)](int64_t step, int64_t first, int64_t count,
                                                const engine::SampleBuffers& out) {
    if (held_out_) {
      data_.read_held_out(*held_out_, step * global_batch_ + first, count, out);
    } else {
      of_steps(step, first, count, out);
    }
  };
}

bool Evaluation::is_due(int64_t done, int64_t steps) const {
  return every_steps_ > 0 && (done % every_steps_ == 0 || done == steps);
}

double Evaluation::loss(engine::Engine& engine) {
  engine.wait_all();  // communication in flight belongs to the step
  const double waited_s = groups_.waited_s();
  const std::vector<comm::TrafficCount> before = groups_.traffic();
  for (size_t set = 0; set < losses_.size(); ++set) {
    held_out_ = set;
    losses_[set].loss = loss_of(losses_[set].set, engine);
  }
  held_out_.reset();
  std::vector<comm::TrafficCount> sent = groups_.traffic();
  record::subtract_traffic(sent, before);
  record::add_traffic(traffic_, sent);
  waited_s_ += groups_.waited_s() - waited_s;
  return losses_.at(0).loss;
}

double Evaluation::loss_of(const std::string& set, engine::Engine& engine) {
  double sum = 0, accuracy = 0;
  int64_t targets = 0;
  for (int64_t batch = 0; batch < batches_; ++batch) {
    sum += engine.evaluate(batch);
    accuracy += engine.accuracy();
    targets += engine.counted();
  }
  if (targets == 0) {
    throw optim::TrainingError(
        fmt::format("no target of the evaluation data{} counts in the loss: raise "
                    "training.evaluation.samples, or correct the data's loss mask",
                    set.empty() ? "" : fmt::format(" (set {})", set)));
  }
  // Engine::evaluate() divides by the number of all targets; targets that do not count add 0.
  const double counted = static_cast<double>(targets) / static_cast<double>(batch_targets_);
  if (classifies_) accuracy_ = accuracy / counted;
  return sum / counted;
}

}  // namespace smp::training
