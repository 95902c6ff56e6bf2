#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/runtime/kernels/call_context.h"
#include "smp/runtime/kernels/context_parallel.h"
#include "smp/runtime/kernels/expert_parallel.h"
#include "smp/runtime/kernels/tensor_parallel.h"

namespace at {
class Tensor;
}

// A Layer is one step of a model, on one tensor-parallel rank. A call is an island: it hands the
// tensors that its backward needs to the engine. The engine decides whether they are kept,
// offloaded or recomputed. Gradients of weights are accumulated in the flat gradient buffer. Not
// thread-safe: all calls of a layer come from one thread. Several microbatches may be in flight.
namespace smp::layers {

// Views of one layer's parameters and gradients in the flat buffers, in the order of
// parameters_of(): this tensor rank's boxes, matrices [rows, cols], vectors [rows]. Parameters that
// are adjacent in parameters_of() (q, k and v; gate and up) must be adjacent in memory. A tied head
// gets the token embedding's weight and gradient as its last entry.
struct LayerParameters {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> gradients;
};

struct PreparedProgram;

// The tensors that a forward saves for its backward, in the order of LayerProgram::saved.
struct Saved {
  std::vector<at::Tensor> tensors;
  const PreparedProgram* program = nullptr;  // whose forward has saved them
};

// The deferred weight gradients of one backward, for zero-bubble schedules.
class DeferredWeightGradients {
 public:
  void defer(std::function<void()> piece) { pieces_.push_back(std::move(piece)); }
  // Computes and accumulates all, in the order in which they were deferred. Each piece frees its
  // factors when it is done.
  void run();

 private:
  std::vector<std::function<void()>> pieces_;
};

// What a router has done in the backwards of some microbatches.
struct RouterLoad {
  std::vector<int64_t> tokens;  // that chose each expert; empty: the layer has none
  int64_t dropped = 0;          // choices that a full expert did not take
  double balance_loss = 0;      // each with its factor, summed over the tokens
  double z_loss = 0;
};

class Layer {
 public:
  virtual ~Layer() = default;

  // One microbatch, b samples of s tokens. With sequence parallelism x has only this rank's part of
  // the tokens (tensor_parallel.h):
  //   embedding  {tokens [b, s] int64}                   -> {x [b, s, h]}
  //   block      {x [b, s, h]}                           -> {x [b, s, h]}
  //   head       {x [b, s, h], targets [b, s] int64}     -> {loss [], mean over the b * s tokens}
  // Inputs are contiguous and must not change until the backward. Fills `saved` with what the
  // backward needs; nullptr: there is no backward, and nothing is saved.
  virtual std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                          const kernels::CallContext& call, Saved* saved) = 0;

  // Returns the gradients of the inputs (undefined for integers) and adds those of the weights to
  // LayerParameters::gradients. With `deferred` the products of weight gradients are deferred, and
  // their factors live until they run; gradients of norms, biases and tables are added at once.
  // Frees each saved tensor as early as possible.
  virtual std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                           const kernels::CallContext& call,
                                           DeferredWeightGradients* deferred) = 0;

  // Of the backwards since the last call. The tensor ranks have the same.
  virtual RouterLoad take_router_load() { return {}; }
  // Of a router whose balancing loss counts the global batch: the tokens that chose each expert in
  // the forwards of the step. The backwards need the mean of a microbatch in its place. Empty
  // before the first forward; null: there is no such router.
  virtual std::vector<double>* step_choices() { return nullptr; }

  // Selective recomputation. drop_recomputable() frees the saved tensors,
  // LayerMemory::recomputable_bytes in all, that rematerialize() computes again from the others, to
  // the bit. By default a layer has none.
  virtual void drop_recomputable(Saved& /*saved*/) const {}
  virtual void rematerialize(Saved& /*saved*/) const {}
};

// The programs of a model's layers on this rank, which alike layers share.
class ProgramCache;
std::shared_ptr<ProgramCache> make_program_cache(const ModelSpec& model,
                                                 const Fusions& fusions = {});

std::unique_ptr<Layer> make_layer(const model::LayerSpec& layer, LayerParameters parameters,
                                  const kernels::TensorParallel& group,
                                  std::shared_ptr<ProgramCache> programs,
                                  const kernels::ContextParallel& context = {},
                                  const kernels::ExpertParallel& experts = {});

}  // namespace smp::layers
