#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "smp/plan/layout/layout.h"
#include "smp/plan/schedule/schedule.h"

namespace smp::parallel {

// The position of a layer in its stage and chunk, and its relations to neighbouring layers.
struct LayerPosition {
  size_t in_stage = 0;  // index in ParallelModel::layers
  size_t in_chunk = 0;  // how many layers of its chunk come before it
  bool opens_chunk = false;
  bool closes_chunk = false;
  bool is_first = false;    // of the model: it has no input from another layer
  bool makes_loss = false;  // the model's last layer
  // Full recomputation before its backward, from its saved input or from the recomputed output of
  // the layer before it.
  bool is_recomputed = false;
  bool drops_recomputable = false;  // selective recomputation (Layer::drop_recomputable)
  bool keeps_input = false;
  bool feeds_recompute = false;  // the layer after it is recomputed from its recomputed output
  std::optional<model::BatchField> reads;
  // On the layer that opens a chunk: the fields that the chunk's layers read, each once.
  std::vector<model::BatchField> chunk_reads;
  // The chunk of this same stage that makes the layer's input, or takes its output, without a
  // message. -1 = a chunk of another stage, or none.
  int64_t takes_from = -1;
  int64_t hands_to = -1;
};

// The positions of a stage's layers by their model index. Immutable.
class StageMap {
 public:
  StageMap(const JobSpec& job, const schedule::ScheduleParameters& parameters,
           const layout::RankLayout& layout);

  const LayerPosition& of(int64_t layer) const {
    return places_.at(static_cast<size_t>(layer - first_layer_));
  }
  bool defers_weight_gradients() const { return defers_weight_gradients_; }

 private:
  // By model index, from first_layer_ on; layers of other stages have empty entries.
  std::vector<LayerPosition> places_;
  int64_t first_layer_ = 0;
  bool defers_weight_gradients_ = false;
};

}  // namespace smp::parallel
