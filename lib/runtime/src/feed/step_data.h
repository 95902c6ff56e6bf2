#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "feed/data_source.h"
#include "smp/plan/data/read_ahead.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/record/metrics.h"

namespace smp::feed {

// A rank's training data, step by step. A thread reads tokens one batch ahead; images are read when
// they are needed. The batch that is read ahead is charged to the ledger of the thread that creates
// this object. Used by the rank's own thread; `data` must outlive it.
class StepData {
 public:
  StepData(const Plan& plan, const DataSource& data, const layout::RankLayout& layout);

  // Steps [first_step, last_step) will be trained.
  void start(int64_t first_step, int64_t last_step);

  // As DataSource::read().
  void read(int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out);

  // The epochs of each source after `samples` samples; empty for images.
  std::vector<record::SourceEpoch> epochs(int64_t samples) const;

 private:
  const DataSource& data_;
  ledger::MemoryCharge charge_;
  std::optional<data::ReadAhead> ahead_;  // of tokens
};

}  // namespace smp::feed
