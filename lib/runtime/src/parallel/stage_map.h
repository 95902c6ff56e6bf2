#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "smp/plan/layout/layout.h"
#include "smp/plan/schedule/schedule.h"

namespace smp::parallel {

// Where a layer of this stage stands: in the stage, in its chunk, and what is beside it.
struct LayerPlace {
  size_t in_stage = 0;  // index in ParallelModel::layers
  size_t in_chunk = 0;  // how many layers of its chunk come before it
  bool opens_chunk = false;
  bool closes_chunk = false;
  bool is_first = false;    // of the model: no layer hands it anything
  bool makes_loss = false;  // and hands on nothing
  // It is computed again before its backward: from its own input, or from what the layer before it
  // gives then.
  bool is_recomputed = false;
  bool is_thinned = false;  // it keeps what it saves but for what complete() makes again
  bool keeps_input = false;
  bool feeds_recompute = false;  // the layer after it is computed again from its output
  std::optional<model::BatchField> reads;
  // On the layer that opens a chunk: what its layers read, and where documents begin, once.
  std::vector<model::BatchField> chunk_reads;
  // The chunk of this very stage that makes what the layer takes, or takes what it makes: handed
  // over without a message. -1 = another stage's, or none.
  int64_t takes_from = -1;
  int64_t hands_to = -1;
};

// The places of a stage's layers by their model index. Immutable.
class StageMap {
 public:
  StageMap(const JobSpec& job, const schedule::ScheduleParameters& parameters,
           const layout::RankLayout& layout);

  const LayerPlace& of(int64_t layer) const {
    return places_.at(static_cast<size_t>(layer - first_layer_));
  }
  bool puts_weights_off() const { return puts_weights_off_; }

 private:
  std::vector<LayerPlace> places_;  // by model index, from first_layer_ on; other stages' are empty
  int64_t first_layer_ = 0;
  bool puts_weights_off_ = false;
};

}  // namespace smp::parallel
