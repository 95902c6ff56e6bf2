#include "feed/step_data.h"

#include "smp/plan/data/token_data.h"

namespace smp::feed {

StepData::StepData(const Plan& plan, const DataSource& data, const layout::RankLayout& layout)
    : data_(data) {
  const data::TokenData* tokens = data.tokens();
  if (tokens == nullptr) return;
  const data::BatchShare share = data::batch_share(plan, layout);
  const ledger::ItemScope item("next batch, read ahead");
  if (share.bytes() > 0) charge_ = ledger::MemoryCharge(MemoryCategory::kData, share.bytes());
  ahead_.emplace([tokens](int64_t step, int64_t first, int64_t count,
                          const data::TokenBuffers& out) { tokens->read(step, first, count, out); },
                 share);
}

void StepData::start(int64_t first_step, int64_t last_step) {
  if (ahead_) ahead_->start(first_step, last_step);
}

std::vector<record::SourceEpoch> StepData::epochs(int64_t samples) const {
  std::vector<record::SourceEpoch> named;
  const data::TokenData* tokens = data_.tokens();
  if (tokens == nullptr) return named;
  for (const double epoch : tokens->epochs(samples))
    named.push_back({tokens->source_name(named.size()), epoch});
  return named;
}

void StepData::read(int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out) {
  if (!ahead_) return data_.read(step, first, count, out);
  ahead_->read(step, first, count, token_buffers(out));
}

}  // namespace smp::feed
