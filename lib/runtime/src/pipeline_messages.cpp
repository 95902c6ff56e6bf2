#include "pipeline_messages.h"

#include <ATen/ops/empty.h>

#include <string_view>
#include <utility>

#include "smp/plan/check.h"
#include "torch_dtype.h"

namespace smp {
namespace {

std::string_view label_of(Payload payload) {
  switch (payload) {
    case Payload::kActivation: return "pipeline.activations";
    case Payload::kGradient: return "pipeline.gradients";
    case Payload::kTiedGradient: return "tied.gradients";
    case Payload::kTiedWeight: return "tied.weights";
    case Payload::kNone: break;
  }
  check_failed(__FILE__, __LINE__, "a message without payload");
}

void wait_in_vain(const WorkPtr& work) {
  try {
    if (work) work->wait();
  } catch (const CommError&) {  // the failure that ended it is reported already
  }
}

bool is_tied(Payload payload) {
  return payload == Payload::kTiedGradient || payload == Payload::kTiedWeight;
}

}  // namespace

PipelineMessages::PipelineMessages(const Plan& plan, ParallelModel& model,
                                   Microbatches& microbatches)
    : plan_(plan), model_(model), microbatches_(microbatches) {}

Communicator& PipelineMessages::group_of(Payload payload) {
  return model_.groups->at(is_tied(payload) ? Axis::kTied : Axis::kPipeline);
}

// The tied group is of two: the owner of the weight, and the stage that has the copy.
int PipelineMessages::peer_of(const Action& action) const {
  if (!is_tied(action.payload)) return static_cast<int>(action.peer);
  return model_.parameters->layout().coord.pipeline == 0 ? 1 : 0;
}

void PipelineMessages::start_receive(const Action& action) {
  const FlatParameters& parameters = *model_.parameters;
  const DType dtype =
      action.payload == Payload::kTiedGradient ? parameters.gradient_dtype() : parameters.dtype();
  const auto options = at::TensorOptions().dtype(scalar_type_of(dtype));
  Message message;
  if (action.payload == Payload::kTiedWeight) {
    message.tensor = parameters.tied_weight();
  } else {
    const CategoryScope category(MemoryCategory::kCommunication);
    const TrainingSpec& training = plan_.job.training;
    message.tensor = action.payload == Payload::kTiedGradient
                         ? at::empty(parameters.weight(0).sizes(), options)
                         : at::empty({*training.micro_batch, training.sequence_length,
                                      plan_.job.model.hidden_size},
                                     options);
  }
  message.work = group_of(action.payload)
                     .recv(message.tensor.mutable_data_ptr(), message.tensor.numel(), dtype,
                           peer_of(action), label_of(action.payload));
  receives_[key_of(action)] = std::move(message);
}

void PipelineMessages::finish_receive(const Action& action) {
  receives_.at(key_of(action)).work->wait();
  Message message = std::move(receives_.extract(key_of(action)).mapped());
  switch (action.payload) {
    case Payload::kActivation:
      microbatches_.admit(action.chunk, action.microbatch).hidden = {std::move(message.tensor)};
      return;
    case Payload::kGradient:
      microbatches_.at(action.chunk, action.microbatch).gradients = {std::move(message.tensor)};
      return;
    case Payload::kTiedGradient: model_.parameters->gradient(0).add_(message.tensor); return;
    case Payload::kTiedWeight: return;
    case Payload::kNone: break;
  }
  check_failed(__FILE__, __LINE__, "a message without payload");
}

void PipelineMessages::start_send(const Action& action) {
  Message message;
  switch (action.payload) {
    case Payload::kActivation: {
      InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
      message.tensor = std::exchange(flight.hidden, {}).at(0);
      if (flight.calls.empty()) microbatches_.end_if_done(action.chunk, action.microbatch);
      break;
    }
    case Payload::kGradient: {
      InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
      message.tensor = std::exchange(flight.gradients, {}).at(0).contiguous();
      microbatches_.end_if_done(action.chunk, action.microbatch);
      break;
    }
    case Payload::kTiedGradient: message.tensor = model_.parameters->tied_gradient(); break;
    case Payload::kTiedWeight: message.tensor = model_.parameters->weight(0); break;
    case Payload::kNone: check_failed(__FILE__, __LINE__, "a message without payload");
  }
  const DType dtype = action.payload == Payload::kTiedGradient ? model_.parameters->gradient_dtype()
                                                               : model_.parameters->dtype();
  message.work = group_of(action.payload)
                     .send(message.tensor.const_data_ptr(), message.tensor.numel(), dtype,
                           peer_of(action), label_of(action.payload));
  sends_[key_of(action)] = std::move(message);
}

void PipelineMessages::finish_send(const Action& action) {
  sends_.at(key_of(action)).work->wait();
  sends_.erase(key_of(action));
}

void PipelineMessages::abandon() {
  for (auto* messages : {&receives_, &sends_}) {
    for (auto& [key, message] : *messages) wait_in_vain(message.work);
  }
}

}  // namespace smp
