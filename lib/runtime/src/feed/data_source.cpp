#include "feed/data_source.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "smp/plan/data/token_data.h"
#include "smp/plan/model/operators.h"
#include "smp/runtime/feed/image_data.h"

namespace smp::feed {
namespace {

class Tokens final : public DataSource {
 public:
  explicit Tokens(const JobSpec& job) : data_(job) {}

  void read(int64_t step, int64_t first, int64_t count,
            const engine::SampleBuffers& out) const override {
    data_.read(step, first, count, token_buffers(out));
  }
  void read_held_out(size_t set, int64_t first, int64_t count,
                     const engine::SampleBuffers& out) const override {
    data_.read_held_out(set, first, count, token_buffers(out));
  }
  const data::TokenData* tokens() const override { return &data_; }
  std::vector<std::string> evaluation_sets() const override { return data_.evaluation_sets(); }
  int64_t trained_size() const override { return data_.trained_tokens(); }
  std::vector<files::FileIdentity> files() const override { return data_.files(); }
  std::vector<files::FileIdentity> evaluation_files() const override {
    return data_.evaluation_files();
  }

 private:
  const data::TokenData data_;
};

// T: the type of the images' pixels.
template <typename T>
class Images final : public DataSource {
 public:
  explicit Images(const JobSpec& job)
      : data_(job), evaluates_(job.training.evaluation.every_steps > 0) {}

  void read(int64_t step, int64_t first, int64_t count,
            const engine::SampleBuffers& out) const override {
    data_.read(step, first, count, pixels(out), out.integers(model::BatchField::kLabels));
  }
  void read_held_out(size_t, int64_t first, int64_t count,
                     const engine::SampleBuffers& out) const override {
    data_.read_held_out(first, count, pixels(out), out.integers(model::BatchField::kLabels));
  }
  std::vector<std::string> evaluation_sets() const override {
    return evaluates_ ? std::vector<std::string>{""} : std::vector<std::string>();
  }
  int64_t trained_size() const override { return data_.trained(); }
  std::vector<files::FileIdentity> files() const override { return {data_.identity()}; }
  std::vector<files::FileIdentity> evaluation_files() const override { return {}; }

 private:
  static T* pixels(const engine::SampleBuffers& out) {
    return static_cast<T*>(out.get(model::BatchField::kImages));
  }

  const ImageData data_;
  const bool evaluates_;
};

}  // namespace

data::TokenBuffers token_buffers(const engine::SampleBuffers& out) {
  return {.tokens = out.integers(model::BatchField::kTokens),
          .targets = out.integers(model::BatchField::kTargets),
          .document_starts = out.integers(model::BatchField::kDocumentStarts)};
}

std::unique_ptr<DataSource> open_data(const Plan& plan) {
  if (!model::is_list(plan.job.model)) return std::make_unique<Tokens>(plan.job);
  switch (compute_dtype(plan)) {
    case DType::kF64: return std::make_unique<Images<double>>(plan.job);
    case DType::kBF16: return std::make_unique<Images<c10::BFloat16>>(plan.job);
    case DType::kF16: return std::make_unique<Images<c10::Half>>(plan.job);
    default: return std::make_unique<Images<float>>(plan.job);
  }
}

}  // namespace smp::feed
