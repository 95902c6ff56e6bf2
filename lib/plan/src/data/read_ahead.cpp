#include "smp/plan/data/read_ahead.h"

#include <algorithm>
#include <utility>

#include "smp/plan/base/check.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/spec/plan.h"
#include "smp/plan/system/signals_blocked.h"

namespace smp::data {

int64_t BatchShare::microbatch_values() const {
  const int64_t fields = (tokens ? sequences : 0) + (targets ? 1 : 0) + (document_starts ? 1 : 0);
  return fields * micro_batch * length;
}

TokenBuffers BatchShare::microbatch_in(int64_t* values) const {
  const int64_t field = micro_batch * length;
  TokenBuffers buffers;
  if (tokens) buffers.tokens = std::exchange(values, values + sequences * field);
  if (targets) buffers.targets = std::exchange(values, values + field);
  if (document_starts) buffers.document_starts = values;
  return buffers;
}

BatchShare batch_share(const Plan& plan, const layout::RankLayout& layout) {
  const TrainingSpec& training = plan.job.training;
  BatchShare share;
  share.microbatches = training.microbatches.value();
  share.micro_batch = training.micro_batch.value();
  share.first_sample = layout.coord.data(plan.degrees) * share.microbatches * share.micro_batch;
  share.length = training.sequence_length;
  share.sequences = sequences_per_sample(plan.job.model);
  auto layer = layout.layers.begin();
  for (const int64_t count : layout.chunk_layers) {
    bool reads = false;
    for (int64_t i = 0; i < count; ++i, ++layer) {
      const bool starts = model::reads_document_starts(plan.job, *layer);
      share.tokens |= layer->reads && model::source_of(*layer->reads) == model::BatchField::kTokens;
      share.targets |= layer->reads == model::BatchField::kTargets;
      share.document_starts |= starts;
      reads |= starts || layer->reads.has_value();
    }
    share.readers += reads ? 1 : 0;
  }
  return share;
}

ReadAhead::ReadAhead(Read read, const BatchShare& share) : read_(std::move(read)), share_(share) {
  if (share_.readers == 0) return;
  places_.resize(static_cast<size_t>(share_.microbatches));
  for (Place& place : places_) place.values.resize(static_cast<size_t>(share_.microbatch_values()));
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ReadAhead::start(int64_t first_step, int64_t last_step) {
  SMP_CHECK(!thread_.joinable());
  if (places_.empty() || first_step >= last_step) return;
  end_ = last_step;
  for (Place& place : places_) place.step = first_step;
  thread_ = system::start_without_signals([=, this] { read_all(first_step, last_step); });
}

void ReadAhead::read_all(int64_t first_step, int64_t last_step) {
  for (int64_t step = first_step; step < last_step; ++step) {
    for (size_t i = 0; i < places_.size(); ++i) {
      Place& place = places_[i];
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closed_ || place.left == 0; });
        if (closed_) return;
      }
      std::exception_ptr failure;
      try {
        const int64_t first = share_.first_sample + static_cast<int64_t>(i) * share_.micro_batch;
        read_(step, first, share_.micro_batch, share_.microbatch_in(place.values.data()));
      } catch (...) {
        failure = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        failure_ = failure;
        if (!failure) place.left = share_.readers;
      }
      changed_.notify_all();
      if (failure) return;
    }
  }
}

void ReadAhead::copy(Place& place, const TokenBuffers& out) const {
  const int64_t field = share_.micro_batch * share_.length;
  const TokenBuffers from = share_.microbatch_in(place.values.data());
  const auto put = [](const int64_t* values, int64_t count, int64_t* to) {
    if (to == nullptr) return;
    SMP_CHECK(values != nullptr);
    std::copy_n(values, count, to);
  };
  put(from.tokens, share_.sequences * field, out.tokens);
  put(from.targets, field, out.targets);
  put(from.document_starts, field, out.document_starts);
}

void ReadAhead::read(int64_t step, int64_t first, int64_t count, const TokenBuffers& out) {
  const int64_t offset = first - share_.first_sample;
  const int64_t microbatch = share_.micro_batch == 0 ? 0 : offset / share_.micro_batch;
  const bool is_ours = thread_.joinable() && count == share_.micro_batch && offset >= 0 &&
                       offset % share_.micro_batch == 0 && microbatch < share_.microbatches;
  if (!is_ours) return read_(step, first, count, out);
  Place& place = places_[static_cast<size_t>(microbatch)];
  {
    std::unique_lock lock(mutex_);
    if (step != place.step || step >= end_) {
      lock.unlock();
      return read_(step, first, count, out);
    }
    changed_.wait(lock, [&] { return place.left > 0 || failure_; });
    if (place.left == 0) std::rethrow_exception(failure_);
  }
  copy(place, out);
  bool is_free = false;
  {
    const std::lock_guard lock(mutex_);
    is_free = --place.left == 0;
    if (is_free) ++place.step;
  }
  if (is_free) changed_.notify_all();
}

}  // namespace smp::data
