#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/runtime/kernels/call_context.h"
#include "smp/runtime/kernels/tensor_parallel.h"

namespace at {
class Tensor;
}

// A Layer is one step of a model, on one tensor-parallel rank. A call is an island: what its
// backward needs is handed to the engine, which decides how long it lives, where, and whether it is
// kept at all or made again. Weights' gradients are added straight into the flat gradient buffer.
// Not thread-safe: calls and backwards of a layer come from one thread. Calls may be under way for
// several microbatches at once.
namespace smp::layers {

// Views of one layer's parameters and gradients in the flat buffers, in the order of
// parameters_of(): this tensor rank's boxes, matrices [rows, cols], vectors [rows]. Where
// parameters_of() puts neighbours (q, k and v; gate and up) the views must be neighbours in memory.
// A tied head gets the token embedding's weight and gradient as its last entry.
struct LayerParameters {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> gradients;
};

// What a call keeps from its forward to its backward. The order is the layer's own affair.
using Saved = std::vector<at::Tensor>;

// The weights' gradients of one backward, put off: each piece holds the tensors that it multiplies.
class WeightWork {
 public:
  void put_off(std::function<void()> piece) { pieces_.push_back(std::move(piece)); }
  // Adds all of them, in the order of their backward; each lets go of its tensors when it is done.
  void run();

 private:
  std::vector<std::function<void()>> pieces_;
};

class Layer {
 public:
  virtual ~Layer() = default;

  // One microbatch; b samples of s tokens (x, where sequences are split: of the rank's part of
  // them, tensor_parallel.h):
  //   embedding  {tokens [b, s] int64}                   -> {x [b, s, h]}
  //   block      {x [b, s, h]}                           -> {x [b, s, h]}
  //   head       {x [b, s, h], targets [b, s] int64}     -> {loss [], mean over the b * s tokens}
  // Inputs are contiguous, and must not change until the backward. Appends to `saved` what backward
  // needs; nullptr: there will be none, and nothing is kept.
  virtual std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                          const kernels::CallContext& call, Saved* saved) = 0;

  // Gives the gradients of the inputs (undefined for integers) and adds those of the weights to
  // LayerParameters::gradients. With `later` the products of the weights' gradients are put off and
  // what they need lives until then; norms, biases and tables are added at once. Lets go of each
  // saved tensor as soon as it can.
  virtual std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                           const kernels::CallContext& call, WeightWork* later) = 0;

  // Selective recompute: lets go of those saved tensors that complete() makes again of the others,
  // to the bit; of LayerMemory::thinned_bytes. Most layers have none.
  virtual void thin(Saved& /*saved*/) const {}
  virtual void complete(Saved& /*saved*/) const {}
};

std::unique_ptr<Layer> make_layer(const ModelSpec& model, const model::LayerSpec& layer,
                                  LayerParameters parameters, kernels::TensorParallel group);

}  // namespace smp::layers
