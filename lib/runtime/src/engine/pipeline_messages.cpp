#include "engine/pipeline_messages.h"

#include <string_view>
#include <utility>

#include "gpu/gpu.h"
#include "ledger/tensor_factories.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/base/check.h"

namespace smp::engine {
namespace {

std::string_view label_of(schedule::Payload payload) {
  switch (payload) {
    case schedule::Payload::kActivation: return "pipeline.activations";
    case schedule::Payload::kGradient: return "pipeline.gradients";
    case schedule::Payload::kTiedGradient: return "tied.gradients";
    case schedule::Payload::kTiedWeight: return "tied.weights";
    case schedule::Payload::kNone: break;
  }
  check_failed(__FILE__, __LINE__, "a message without payload");
}

void wait_for(const std::vector<comm::WorkPtr>& works) {
  for (const comm::WorkPtr& work : works) work->wait();
}

void wait_ignoring_errors(const std::vector<comm::WorkPtr>& works) {
  for (const comm::WorkPtr& work : works) {
    try {
      work->wait();
    } catch (const std::exception&) {  // the error that ended the step is reported instead
    }
  }
}

bool is_tied(schedule::Payload payload) {
  return payload == schedule::Payload::kTiedGradient || payload == schedule::Payload::kTiedWeight;
}

}  // namespace

PipelineMessages::PipelineMessages(std::vector<layout::ChunkEnds> ends,
                                   parallel::ParallelModel& model, Microbatches& microbatches)
    : ends_(std::move(ends)), model_(model), microbatches_(microbatches) {}

comm::Communicator& PipelineMessages::group_of(schedule::Payload payload) {
  return model_.groups->at(is_tied(payload) ? mesh::Axis::kTied : mesh::Axis::kPipeline);
}

// The tied group has two ranks: the owner of the weight, and the stage that has the copy.
int PipelineMessages::peer_of(const schedule::Action& action) const {
  if (!is_tied(action.payload)) return static_cast<int>(action.peer);
  return model_.parameters->layout().coord.pipeline == 0 ? 1 : 0;
}

std::vector<at::Tensor> PipelineMessages::receive_buffers(const schedule::Action& action) {
  const parameters::FlatParameters& parameters = *model_.parameters;
  if (action.payload == schedule::Payload::kTiedWeight) return {parameters.tied_weight()};
  const at::Device device = gpu::device_of(model_.gpu.get());
  const ledger::CategoryScope category(MemoryCategory::kCommunication);
  if (action.payload == schedule::Payload::kTiedGradient) {
    return {ledger::empty_tensor({parameters.weight(0).sizes().vec(), parameters.gradient_dtype()},
                                 device)};
  }
  const layout::ChunkEnds& ends = ends_.at(static_cast<size_t>(action.chunk));
  const bool is_gradient = action.payload == schedule::Payload::kGradient;
  std::vector<at::Tensor> buffers;
  for (const model::TensorSpec& spec : is_gradient ? ends.hands : ends.takes) {
    buffers.push_back(is_gradient && !spec.has_gradient() ? at::Tensor()
                                                          : ledger::empty_tensor(spec, device));
  }
  return buffers;
}

void PipelineMessages::start_receive(const schedule::Action& action) {
  Message message{receive_buffers(action), {}};
  for (const at::Tensor& tensor : message.tensors) {
    if (!tensor.defined()) continue;
    message.works.push_back(group_of(action.payload)
                                .recv(tensor.mutable_data_ptr(), tensor.numel(),
                                      ledger::dtype_of(tensor.scalar_type()), peer_of(action),
                                      label_of(action.payload)));
  }
  receives_[key_of(action)] = std::move(message);
}

void PipelineMessages::finish_receive(const schedule::Action& action) {
  wait_for(receives_.at(key_of(action)).works);
  Message message = std::move(receives_.extract(key_of(action)).mapped());
  switch (action.payload) {
    case schedule::Payload::kActivation:
      microbatches_.admit(action.chunk, action.microbatch).hidden = std::move(message.tensors);
      return;
    case schedule::Payload::kGradient:
      microbatches_.at(action.chunk, action.microbatch).gradients = std::move(message.tensors);
      return;
    case schedule::Payload::kTiedGradient:
      model_.parameters->gradient(0).add_(message.tensors.front());
      return;
    case schedule::Payload::kTiedWeight: return;
    case schedule::Payload::kNone: break;
  }
  check_failed(__FILE__, __LINE__, "a message without payload");
}

void PipelineMessages::start_send(const schedule::Action& action) {
  Message message;
  switch (action.payload) {
    case schedule::Payload::kActivation: {
      InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
      message.tensors = std::exchange(flight.hidden, {});
      if (flight.calls.empty()) microbatches_.end_if_done(action.chunk, action.microbatch);
      break;
    }
    case schedule::Payload::kGradient: {
      InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
      message.tensors = std::exchange(flight.gradients, {});
      for (at::Tensor& tensor : message.tensors) {
        if (tensor.defined()) tensor = tensor.contiguous();
      }
      microbatches_.end_if_done(action.chunk, action.microbatch);
      break;
    }
    case schedule::Payload::kTiedGradient:
      message.tensors = {model_.parameters->tied_gradient()};
      break;
    case schedule::Payload::kTiedWeight: message.tensors = {model_.parameters->weight(0)}; break;
    case schedule::Payload::kNone: check_failed(__FILE__, __LINE__, "a message without payload");
  }
  for (const at::Tensor& tensor : message.tensors) {
    if (!tensor.defined()) continue;
    message.works.push_back(group_of(action.payload)
                                .send(tensor.const_data_ptr(), tensor.numel(),
                                      ledger::dtype_of(tensor.scalar_type()), peer_of(action),
                                      label_of(action.payload)));
  }
  sends_[key_of(action)] = std::move(message);
}

void PipelineMessages::finish_send(const schedule::Action& action) {
  wait_for(sends_.at(key_of(action)).works);
  sends_.erase(key_of(action));
}

void PipelineMessages::abandon() {
  for (auto* messages : {&receives_, &sends_}) {
    for (auto& [key, message] : *messages) wait_ignoring_errors(message.works);
  }
}

}  // namespace smp::engine
