#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/layout/layout.h"

namespace at {
class Tensor;
}

// The weights and gradients of one rank: two flat buffers laid out by its RankLayout, and for each
// parameter a view into each. Collectives and the optimizer work on the flat buffers, layers on the
// views; the bytes are the same.
//
// If weights or gradients are sharded, the flat buffer holds this rank's parts only. The views are
// then in buffers that buckets use in turn (RankLayout), and the schedule says when a view is
// valid. No step allocates. Used by the rank's own thread, under its LedgerScope.
namespace smp::comm {
class Communicator;
}
namespace smp::gpu {
class Gpu;
}
namespace smp::layers {
struct LayerParameters;
}
namespace smp::ledger {
class MemoryLedger;
}

namespace smp::parameters {

struct OwnedPart;  // owned_part.h

class FlatParameters {
 public:
  // Allocates all buffers (categories weights and gradients), zeroed. Gradients are fp32 if
  // `dtype`, the weights' type, has 16 bits, else of the same type. `peers` allocates memory that
  // the other ranks read in place, which saves their collectives a copy. With `host`, sharded
  // weights are in host memory: a rank's part comes to the device when its bucket is gathered. With
  // `gpu` everything else is on that GPU, and `peers` is not used.
  FlatParameters(layout::RankLayout layout, DType dtype, comm::Communicator* peers = nullptr,
                 ledger::MemoryLedger* host = nullptr, const gpu::Gpu* gpu = nullptr);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  const layout::RankLayout& layout() const;
  DType dtype() const;           // of the weights
  DType gradient_dtype() const;  // of the gradients
  bool weights_on_host() const;

  // Sets the initial weights (weight_init.h), also of the tied copy, which equals its owner.
  void initialise(uint64_t seed);
  void zero_gradients();  // all that layers accumulate into, also the tied copy's

  // Frees the gradients after training. Layers made of these parameters must be gone.
  void drop_gradients();

  const at::Tensor& weights() const;    // [elements], or [elements / z] where they are sharded
  const at::Tensor& gradients() const;  // likewise

  // The part of a bucket that this rank updates: elements [begin, end) of the layout's flat order,
  // part `shard` of its StateShare's shards, with views of them. The optimizer reads and writes
  // these views, and checkpoints save from them. This rank owns the intersection of a parameter's
  // [offset, offset + size) with [begin, end).
  OwnedPart owned(int64_t bucket) const;

  // All of a bucket, [size]: its range of the flat buffer, or the shared buffer that it uses.
  at::Tensor whole_weights(int64_t bucket) const;
  at::Tensor whole_gradients(int64_t bucket) const;

  // Views of layout().parameters[index], shaped as its box: [rows, cols], vectors [rows].
  const at::Tensor& weight(int64_t index) const;
  const at::Tensor& gradient(int64_t index) const;

  // Indices [first, last) into layout().parameters of the parameters of a layer (its model index),
  // in the order of parameters_of().
  struct Range {
    int64_t first = 0;
    int64_t last = 0;
  };
  Range range_of(int64_t layer) const;

  // The argument of make_layer(): the layer's views. A tied head, and a layer that predicts a
  // further token, get those of the token embedding (or of its copy) at the end.
  layers::LayerParameters layer_parameters(int64_t layer) const;

  // layout().tied_copy's own buffers; undefined tensors when there is none.
  const at::Tensor& tied_weight() const;
  const at::Tensor& tied_gradient() const;
  // Adds tied_gradient() to the embedding's gradient, if this stage has both uses of the weight and
  // sums their gradients separately.
  void add_tied_gradient();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp::parameters
