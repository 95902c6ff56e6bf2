#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/layout/layout.h"

namespace at {
class Tensor;
}

// The weights and gradients of one rank: two flat buffers laid out as its RankLayout says, and for
// each parameter a view into each. Collectives and the optimizer work on the flat buffers, layers
// on the views; the bytes are the same.
//
// Of what is sharded the flat buffer holds this rank's parts alone, and the views lie in buffers
// that buckets share in turn (RankLayout): good while the schedule says so. No step allocates.
// Used by the rank's own thread, under its LedgerScope.
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

class FlatParameters {
 public:
  // Allocates all buffers (categories weights and gradients), zeroed. Gradients are fp32 where
  // `dtype`, the weights', has 16 bits, else of the same type. `peers` gives memory that the other
  // ranks read in place, so that their collectives copy once. With `host` sharded weights lie
  // there: a rank's part is brought to the device when its bucket is gathered. With `gpu` all else
  // is on it, and peers are of no use.
  FlatParameters(layout::RankLayout layout, DType dtype, comm::Communicator* peers = nullptr,
                 ledger::MemoryLedger* host = nullptr, const gpu::Gpu* gpu = nullptr);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  const layout::RankLayout& layout() const;
  DType dtype() const;           // of the weights
  DType gradient_dtype() const;  // of the gradients
  bool weights_on_host() const;

  // Initial weights (weight_init.h), the tied copy included: it equals its owner's.
  void initialise(uint64_t seed);
  void zero_gradients();  // where layers add to them; the tied copy's as well

  // Training is over: from now on there are no gradients. Layers made of these parameters must be
  // gone.
  void drop_gradients();

  const at::Tensor& weights() const;    // [elements], or [elements / z] where they are sharded
  const at::Tensor& gradients() const;  // the same of the gradients

  // What this rank updates of a bucket: elements [begin, end) of the layout's flat order, part
  // `coord.shard` of the bucket's z, and where they lie. The optimizer reads and writes here, and
  // checkpoints save from here: parameter i owns what [offset, offset + size) and this share.
  struct Owned;  // owned_part.h
  Owned owned(int64_t bucket) const;

  // All of a bucket, [size]: its range of the flat buffer, or the buffer that it shares.
  at::Tensor whole_weights(int64_t bucket) const;
  at::Tensor whole_gradients(int64_t bucket) const;

  // Views of layout().parameters[index], shaped as its box: [rows, cols], vectors [rows].
  const at::Tensor& weight(int64_t index) const;
  const at::Tensor& gradient(int64_t index) const;

  // Indices into layout().parameters of the parameters of a layer (its model index), in the order
  // of parameters_of: [first, last).
  struct Range {
    int64_t first = 0;
    int64_t last = 0;
  };
  Range range_of(int64_t layer) const;

  // What make_layer wants: the layer's views, and for a tied head the token embedding's (the copy
  // where there is one) at the end.
  layers::LayerParameters layer_parameters(int64_t layer) const;

  // layout().tied_copy's own buffers; undefined tensors when there is none.
  const at::Tensor& tied_weight() const;
  const at::Tensor& tied_gradient() const;
  // Adds tied_gradient() to the embedding's gradient, where both uses are here and are summed
  // apart.
  void add_tied_gradient();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp::parameters
