#include "data_source.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "smp/plan/data_files.h"
#include "smp/plan/operators.h"
#include "smp/runtime/image_data.h"
#include "smp/runtime/text_data.h"

namespace smp {
namespace {

class Text final : public DataSource {
 public:
  Text(const TrainingSpec& training, int64_t sequences_per_sample)
      : data_(find_data_files(training, sequences_per_sample), training.sequence_length,
              training.seed, held_out_samples(training), sequences_per_sample) {}

  void read(int64_t step, int64_t first, int64_t count, const SampleBuffers& out) const override {
    data_.read(step, first, count, out.integers(BatchField::kTokens),
               out.integers(BatchField::kTargets));
  }
  void read_held_out(int64_t first, int64_t count, const SampleBuffers& out) const override {
    data_.read_held_out(first, count, out.integers(BatchField::kTokens),
                        out.integers(BatchField::kTargets));
  }
  int64_t trained_size() const override { return data_.trained_bytes(); }
  std::vector<FileIdentity> files() const override { return data_.files(); }

 private:
  const TextData data_;
};

// T: of the images.
template <typename T>
class Images final : public DataSource {
 public:
  explicit Images(const JobSpec& job) : data_(job) {}

  void read(int64_t step, int64_t first, int64_t count, const SampleBuffers& out) const override {
    data_.read(step, first, count, pixels(out), out.integers(BatchField::kLabels));
  }
  void read_held_out(int64_t first, int64_t count, const SampleBuffers& out) const override {
    data_.read_held_out(first, count, pixels(out), out.integers(BatchField::kLabels));
  }
  int64_t trained_size() const override { return data_.trained(); }
  std::vector<FileIdentity> files() const override { return {data_.identity()}; }

 private:
  static T* pixels(const SampleBuffers& out) {
    return static_cast<T*>(out.get(BatchField::kImages));
  }

  const ImageData data_;
};

}  // namespace

std::unique_ptr<DataSource> open_data(const Plan& plan) {
  if (!is_list(plan.job.model)) {
    return std::make_unique<Text>(plan.job.training, sequences_per_sample(plan.job.model));
  }
  switch (compute_dtype(plan)) {
    case DType::kF64: return std::make_unique<Images<double>>(plan.job);
    case DType::kBF16: return std::make_unique<Images<c10::BFloat16>>(plan.job);
    case DType::kF16: return std::make_unique<Images<c10::Half>>(plan.job);
    default: return std::make_unique<Images<float>>(plan.job);
  }
}

}  // namespace smp
