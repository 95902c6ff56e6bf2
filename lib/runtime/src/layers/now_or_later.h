#pragma once

#include <utility>

#include "smp/runtime/layers/layer.h"

namespace smp::layers {

// Runs a product of a weight's gradient, at once or put off.
template <typename Piece>
void now_or_later(WeightWork* later, Piece piece) {
  if (later == nullptr) {
    piece();
  } else {
    later->put_off(std::move(piece));
  }
}

}  // namespace smp::layers
