#pragma once

#include <memory>
#include <vector>

#include "smp/plan/layers.h"
#include "smp/runtime/tensor_parallel.h"

namespace at {
class Tensor;
}

// A Layer is one step of a model, on one tensor-parallel rank. A call is one autograd island: a
// single node whose backward returns the input's gradient and adds the weights' gradients straight
// into the flat gradient buffer; weights themselves take no part in autograd. Not thread-safe:
// calls and backwards of a layer come from one thread. A Layer must outlive the graphs of its
// calls. Calls may be under way for several microbatches at once.
namespace smp {

// Views of one layer's parameters and gradients in the flat buffers, in the order of
// parameters_of(): this tensor rank's boxes, matrices [rows, cols], vectors [rows]. Where
// parameters_of() puts neighbours (q, k and v; gate and up) the views must be neighbours in memory.
// A tied head gets the token embedding's weight and gradient as its last entry.
struct LayerParameters {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> gradients;
};

class Layer {
 public:
  virtual ~Layer() = default;

  // One microbatch; b samples of s tokens:
  //   embedding  {tokens [b, s] int64}                   -> {x [b, s, h]}
  //   block      {x [b, s, h]}                           -> {x [b, s, h]}
  //   head       {x [b, s, h], targets [b, s] int64}     -> {loss [], mean over the b * s tokens}
  // Inputs are contiguous and detached. With gradients enabled, the output's backward gives the
  // gradient of x (if x requires grad) and adds to LayerParameters::gradients; the embedding's
  // output requires grad although its tokens cannot. x must not change until then. With gradients
  // disabled nothing is kept.
  virtual std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs) = 0;
};

std::unique_ptr<Layer> make_layer(const ModelSpec& model, const LayerSpec& layer,
                                  LayerParameters parameters, TensorParallel group);

}  // namespace smp
