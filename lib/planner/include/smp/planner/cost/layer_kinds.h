#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::cost {

// The kinds of layers of a job: layers that cost the same are one kind. In the order of the model:
// the embedding, each kind of block (a frozen one apart; of a hybrid each letter; of a list each
// layer), what predicts further tokens, the head. What a layer costs is priced once for each kind,
// and what a stage holds is a count by kind (stage_holds.h). Immutable; any thread.
class LayerKinds {
 public:
  struct Kind {
    model::LayerSpec layer;  // the first of its layers
    bool is_frozen = false;  // one of the first blocks, which training.frozen names
    std::string_view words;  // behind "12 layers": " of experts"
  };

  explicit LayerKinds(const JobSpec& job);

  size_t size() const { return kinds_.size(); }
  const Kind& operator[](size_t kind) const { return kinds_[kind]; }
  size_t of_layer(int64_t index) const { return of_layer_[static_cast<size_t>(index)]; }
  size_t of(const model::LayerSpec& layer) const { return of_layer(layer.index); }
  // The first that has this LayerKind, which the model has.
  size_t of(model::LayerKind kind, bool is_frozen = false) const;

  bool has_embedding() const { return first_block_ > 0; }  // a list has none: it is kind 0
  size_t head() const { return kinds_.size() - 1; }
  // Kinds of blocks: [first_block, end_blocks) are dealt to stages; those up to the head predict
  // further tokens, and stay with it.
  size_t first_block() const { return first_block_; }
  size_t end_blocks() const { return end_blocks_; }

  int64_t blocks() const { return blocks_; }  // dealt to stages
  int64_t further_tokens() const { return further_tokens_; }
  int64_t frozen_blocks() const { return frozen_blocks_; }  // the first ones

  // Whether a stage is priced by the very layers that it holds: of a hybrid, of a list, of an
  // encoder_decoder, and with frozen blocks. In a mixture the second stage stands for all between
  // the first and the last.
  bool differ_by_stage() const { return differ_by_stage_; }

  // Adds the blocks [begin, end) of the model to `counts`, by kind.
  void count_blocks(int64_t begin, int64_t end, std::vector<double>& counts) const;

 private:
  struct Run {  // of neighbouring blocks of one kind
    int64_t begin = 0, end = 0;
    size_t kind = 0;
  };

  std::vector<Kind> kinds_;
  std::vector<size_t> of_layer_;  // by index in the model
  std::vector<Run> runs_;
  size_t first_block_ = 0, end_blocks_ = 0;
  int64_t blocks_ = 0, further_tokens_ = 0, frozen_blocks_ = 0;
  bool differ_by_stage_ = false;
};

}  // namespace smp::cost
