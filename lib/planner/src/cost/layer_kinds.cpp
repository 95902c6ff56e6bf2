#include "smp/planner/cost/layer_kinds.h"

#include <algorithm>

#include "cost/in_engine.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/program/build.h"

namespace smp::cost {
namespace {

char letter_of(const ModelSpec& model, const model::LayerSpec& layer) {
  const bool has_letter = model::is_hybrid(model) && model::is_transformer_block(layer.kind);
  return has_letter ? model::layer_letter(model, layer.index - 1) : '\0';
}

// Whether two layers cost the same. `by_program`: programs are priced, in which the ends of an
// encoder_decoder's stacks differ from their other blocks.
bool are_alike(const JobSpec& job, const model::LayerSpec& a, const model::LayerSpec& b,
               bool by_program) {
  if (a.kind != b.kind || (by_program && !program::are_alike(job.model, a, b))) return false;
  return letter_of(job.model, a) == letter_of(job.model, b) &&
         model::is_frozen_block(job, a) == model::is_frozen_block(job, b);
}

std::string_view words_of(const JobSpec& job, const model::LayerSpec& layer) {
  if (model::is_frozen_block(job, layer)) return " that are frozen";
  if (model::has_experts(job.model, layer)) return " of experts";
  if (layer.kind == model::LayerKind::kCrossBlock) return " that attend twice";
  switch (letter_of(job.model, layer)) {
    case model::kMambaLetter: return " of Mamba-2";
    case model::kAttentionLetter: return " of attention";
    case model::kMlpLetter: return " of MLPs";
    default: return "";
  }
}

}  // namespace

LayerKinds::LayerKinds(const JobSpec& job)
    : blocks_(model::block_count(job.model)),
      further_tokens_(model::is_list(job.model) ? 0 : job.model.num_mtp_layers),
      frozen_blocks_(model::frozen_blocks(job)),
      differ_by_stage_(model::is_list(job.model) || model::is_hybrid(job.model) ||
                       job.model.decoder_layers > 0 || frozen_blocks_ > 0) {
  const std::vector<model::LayerSpec> layers = model::layers_of(job.model);
  first_block_ = layers.front().kind == model::LayerKind::kEmbedding ? 1 : 0;
  const bool is_list = model::is_list(job.model);
  const bool by_program = is_list || runs_in_engine(job);
  for (const model::LayerSpec& layer : layers) {
    size_t kind = is_list ? kinds_.size() : 0;  // no two layers of a list are alike
    while (kind < kinds_.size() && !are_alike(job, kinds_[kind].layer, layer, by_program)) ++kind;
    if (kind == kinds_.size()) {
      kinds_.push_back({layer, model::is_frozen_block(job, layer), words_of(job, layer)});
    }
    of_layer_.push_back(kind);
    const int64_t block = layer.index - static_cast<int64_t>(first_block_);
    if (block < 0 || block >= blocks_) continue;
    end_blocks_ = std::max(end_blocks_, kind + 1);
    if (!runs_.empty() && runs_.back().kind == kind) {
      runs_.back().end = block + 1;
    } else {
      runs_.push_back({block, block + 1, kind});
    }
  }
}

size_t LayerKinds::of(model::LayerKind kind, bool is_frozen) const {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& one) {
    return one.layer.kind == kind && one.is_frozen == is_frozen;
  });
  SMP_CHECK(found != kinds_.end());
  return static_cast<size_t>(found - kinds_.begin());
}

void LayerKinds::count_blocks(int64_t begin, int64_t end, std::vector<double>& counts) const {
  auto run = runs_.begin();
  if (runs_.size() > 1) {
    run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                           [](int64_t block, const Run& one) { return block < one.end; });
  }
  for (; run != runs_.end() && run->begin < end; ++run) {
    const int64_t count = std::min(end, run->end) - std::max(begin, run->begin);
    if (count > 0) counts[run->kind] += static_cast<double>(count);
  }
}

}  // namespace smp::cost
