#include "layers/program_cache.h"

#include "ledger/torch_dtype.h"
#include "smp/plan/program/liveness.h"

namespace smp::layers {
namespace {

std::vector<int64_t> sizes_of(const program::Value& value) {
  std::vector<int64_t> sizes;
  for (const program::Dim& dim : value.shape) sizes.push_back(dim.size);
  return sizes;
}

std::unique_ptr<PreparedProgram> prepare(const ModelSpec& model, const model::LayerSpec& layer,
                                         const model::LayerCall& call,
                                         const std::vector<at::Tensor>& inputs) {
  auto made = std::make_unique<PreparedProgram>();
  made->program = program::build(model, layer, call);
  made->layer = layer;
  made->call = call;
  const program::LayerProgram& program = made->program;
  for (const program::Value& value : program.values) {
    made->sizes.push_back(sizes_of(value));
    made->types.push_back(ledger::scalar_type_of(value.dtype));
  }
  for (const at::Tensor& input : inputs) made->input_sizes.push_back(input.sizes().vec());
  for (const model::TensorSpec& output : model::outputs_of(model, layer, call)) {
    made->output_sizes.push_back(output.shape);
  }
  made->output_sizes.resize(program.outputs.size());  // losses are numbers
  for (const program::Section section :
       {program::Section::kForward, program::Section::kBackward, program::Section::kDeferring,
        program::Section::kWeights, program::Section::kRematerialize}) {
    made->freed[static_cast<int>(section)] = program::life_of(program, section).freed;
  }
  made->freed_in_evaluation = program::life_of(program, program::Section::kForward, false).freed;
  made->deferred = program::deferred_values(program);
  return made;
}

}  // namespace

const PreparedProgram& ProgramCache::get(const model::LayerSpec& layer,
                                         const model::LayerCall& call,
                                         const std::vector<at::Tensor>& inputs) {
  for (const auto& known : programs_) {
    if (known->call.micro_batch == call.micro_batch &&
        known->call.sequence_length == call.sequence_length &&
        program::are_alike(model_, known->layer, layer)) {
      return *known;
    }
  }
  return *programs_.emplace_back(prepare(model_, layer, call, inputs));
}

}  // namespace smp::layers
