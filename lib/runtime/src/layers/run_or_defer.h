#pragma once

#include <utility>

#include "smp/runtime/layers/layer.h"

namespace smp::layers {

// Computes a product of a weight gradient now, or defers it if `deferred` is given.
template <typename Piece>
void run_or_defer(DeferredWeightGradients* deferred, Piece piece) {
  if (deferred == nullptr) {
    piece();
  } else {
    deferred->defer(std::move(piece));
  }
}

}  // namespace smp::layers
