#include "cost/engine_bytes.h"

#include "cost/in_engine.h"
#include "smp/plan/program/liveness.h"

namespace smp::cost {
namespace {

// A recomputed call keeps its output alone and makes the rest again.
CallBytes call_of(const program::LayerMemory& memory) {
  CallBytes call;
  call.saved = static_cast<double>(memory.saved_bytes);
  call.selective = call.saved - static_cast<double>(memory.recomputable_bytes);
  call.output = static_cast<double>(memory.output_bytes);
  call.checkpoint = call.output;
  call.recomputed = call.saved - call.output;
  call.workspace = static_cast<double>(memory.backward_peak_bytes);
  call.forward = static_cast<double>(memory.forward_peak_bytes);
  call.input_gradient = static_cast<double>(memory.input_gradient_bytes);
  return call;
}

}  // namespace

CallBytes engine_call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                            const model::LayerSpec& layer) {
  const model::LayerCall call{choice.micro_batch,
                              job.training.sequence_length,
                              choice.tensor,
                              0,
                              engine_dtype(choice.precision),
                              choice.sequence_parallel,
                              job.parallel.tensor_parallel};
  return call_of(program::memory_of(job.model, layer, call));
}

}  // namespace smp::cost
