#pragma once

#include "smp/plan/spec/job_spec.h"

namespace smp {

// Layers of the model whose attention is limited to a window.
constexpr int64_t windowed_layers(const ModelSpec& model) {
  if (model.sliding_window == 0) return 0;
  const int64_t period = model.full_attention_period;
  return model.num_layers - (period > 0 ? model.num_layers / period : 0);
}

// Pairs of query and key in causal attention over this many keys: half of the square; with a
// window, the part of that half within the window. Where some layers have one, the mean of all
// layers. Pure; any thread.
constexpr double seen_pairs(const ModelSpec& model, double keys) {
  const auto window = static_cast<double>(model.sliding_window);
  const double all = keys * keys / 2;
  if (window == 0 || window >= keys) return all;
  const double chunks = static_cast<double>(static_cast<int64_t>(keys / window));
  const double rest = keys - chunks * window;
  const double seen = model.chunked_windows ? (chunks * window * window + rest * rest) / 2
                                            : window * keys - window * window / 2;
  if (model.full_attention_period == 0) return seen;
  const double share =
      static_cast<double>(windowed_layers(model)) / static_cast<double>(model.num_layers);
  return share * seen + (1 - share) * all;
}

}  // namespace smp
