#include "smp/runtime/engine.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "bucket_traffic.h"
#include "smp/plan/check.h"
#include "torch_dtype.h"

namespace smp {
namespace {

// One call of one layer between its forward and its backward.
struct Call {
  at::Tensor input;   // detached; undefined for the embedding
  at::Tensor output;  // with the island's graph
};

// A microbatch on its way through this stage.
struct InFlight {
  at::Tensor tokens, targets;
  at::Tensor hidden;    // output of the last layer that ran, or what was received
  at::Tensor gradient;  // of the output of the layer whose backward is next
  std::vector<Call> calls;
};

struct Message {
  at::Tensor tensor;  // lives until the message is done
  WorkPtr work;
};
using MessageKey = std::pair<Payload, int64_t>;  // payload, microbatch

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

// The range of a layer's K and V weights in the flat buffers: neighbours, elements.
std::pair<int64_t, int64_t> kv_range(const RankLayout& layout, int64_t layer) {
  int64_t begin = -1, end = -1;
  for (const PlacedParameter& parameter : layout.parameters) {
    if (parameter.layer != layer || parameter.spec.split != TensorSplit::kKvHeads) continue;
    if (begin < 0) begin = end = parameter.offset;
    SMP_CHECK_EQ(parameter.offset, end);
    end += parameter.box.size();
  }
  SMP_CHECK(begin >= 0);
  return {begin, end};
}

}  // namespace

struct Engine::Impl {
  Impl(const Plan& the_plan, ParallelModel& the_model, MemoryLedger& the_ledger,
       ReadSamples read_samples)
      : plan(the_plan),
        model(the_model),
        layout(the_model.parameters->layout()),
        ledger(the_ledger),
        read(std::move(read_samples)),
        buckets(*the_model.parameters, *the_model.groups),
        micro_batch(the_plan.job.training.micro_batch.value()),
        microbatches(the_plan.job.training.microbatches.value()),
        sequence(the_plan.job.training.sequence_length),
        data_rank(layout.coord.data(the_plan.degrees)),
        first_layer(layout.layers.front().index),
        last_layer(layout.layers.back().index),
        is_first_stage(layout.coord.pipeline == 0),
        is_last_stage(layout.coord.pipeline + 1 == the_plan.degrees.pipeline) {}

  const Plan& plan;
  ParallelModel& model;
  const RankLayout& layout;
  MemoryLedger& ledger;
  ReadSamples read;
  BucketTraffic buckets;

  const int64_t micro_batch, microbatches, sequence, data_rank;
  const int64_t first_layer, last_layer;  // model indices
  const bool is_first_stage, is_last_stage;

  // of the step under way
  int64_t step_index = 0;
  double learning_rate = 0;
  double loss_sum = 0;  // of this rank's microbatches
  StepResult result;
  std::map<int64_t, InFlight> in_flight;  // by microbatch
  std::map<MessageKey, Message> receives, sends;

  double loss_scale() const {
    return 1.0 / static_cast<double>(microbatches * plan.degrees.data());
  }
  at::TensorOptions options() const {
    return at::TensorOptions().dtype(scalar_type_of(model.parameters->dtype()));
  }
  const at::Tensor& owned_embedding() const {  // the first parameter of the first layer
    return model.parameters->weight(0);
  }

  void execute(const Action& action);
  void enter(const char* phase, const Action& action);
  void start_receive(const Action& action);
  void finish_receive(const Action& action);
  void start_send(const Action& action);
  void finish_send(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  void reduce_kv(const Action& action);
  void update();
  void abandon(const std::string& reason);
  InFlight& admit(int64_t microbatch);
};

void Engine::Impl::enter(const char* phase, const Action& action) {
  ledger.set_phase({phase, step_index + 1, action.microbatch, action.layer});
}

void Engine::Impl::execute(const Action& action) {
  switch (action.kind) {
    case ActionKind::kReceive: enter("receive", action); return start_receive(action);
    case ActionKind::kReceiveWait: enter("receive", action); return finish_receive(action);
    case ActionKind::kSend: enter("send", action); return start_send(action);
    case ActionKind::kSendWait: enter("send", action); return finish_send(action);
    case ActionKind::kForward: enter("forward", action); return forward(action);
    case ActionKind::kBackward: enter("backward", action); return backward(action);
    case ActionKind::kWeight:
      check_failed(__FILE__, __LINE__, "the engine's backward passes have the weights' gradients");
    case ActionKind::kReduceKv: enter("reduce", action); return reduce_kv(action);
    case ActionKind::kReduce: enter("reduce", action); return buckets.start_reduce(action.bucket);
    case ActionKind::kReduceWait:
      enter("reduce", action);
      return buckets.wait_reduce(action.bucket);
    case ActionKind::kStep: enter("step", action); return update();
    case ActionKind::kGather: enter("gather", action); return buckets.start_gather(action.bucket);
    case ActionKind::kGatherWait:
      enter("gather", action);
      return buckets.wait_gather(action.bucket);
  }
  check_failed(__FILE__, __LINE__, "unknown action");
}

// The microbatch's place on this stage, with what the stage reads of the data.
InFlight& Engine::Impl::admit(int64_t microbatch) {
  const auto [place, is_fresh] = in_flight.try_emplace(microbatch);
  InFlight& flight = place->second;
  if (!is_fresh || (!is_first_stage && !is_last_stage)) return flight;
  const CategoryScope category(MemoryCategory::kData);
  const auto integers = at::TensorOptions().dtype(at::kLong);
  flight.tokens = at::empty({micro_batch, sequence}, integers);
  flight.targets = at::empty({micro_batch, sequence}, integers);
  const int64_t first_sample = (data_rank * microbatches + microbatch) * micro_batch;
  read(step_index, first_sample, micro_batch, flight.tokens.mutable_data_ptr<int64_t>(),
       flight.targets.mutable_data_ptr<int64_t>());
  if (!is_first_stage) flight.tokens.reset();
  if (!is_last_stage) flight.targets.reset();
  return flight;
}

void Engine::Impl::start_receive(const Action& action) {
  Message message;
  int peer = static_cast<int>(action.peer);
  if (action.payload == Payload::kTiedWeight) {
    message.tensor = model.parameters->tied_weight();
  } else {
    const CategoryScope category(MemoryCategory::kCommunication);
    message.tensor =
        action.payload == Payload::kTiedGradient
            ? at::empty(owned_embedding().sizes(), options())
            : at::empty({micro_batch, sequence, plan.job.model.hidden_size}, options());
  }
  if (is_tied(action.payload)) peer = is_first_stage ? 1 : 0;
  Communicator& group = model.groups->at(is_tied(action.payload) ? Axis::kTied : Axis::kPipeline);
  message.work = group.recv(message.tensor.mutable_data_ptr(), message.tensor.numel(),
                            model.parameters->dtype(), peer, label_of(action.payload));
  receives[{action.payload, action.microbatch}] = std::move(message);
}

void Engine::Impl::finish_receive(const Action& action) {
  const MessageKey key{action.payload, action.microbatch};
  receives.at(key).work->wait();
  Message message = std::move(receives.extract(key).mapped());
  switch (action.payload) {
    case Payload::kActivation: admit(action.microbatch).hidden = std::move(message.tensor); return;
    case Payload::kGradient:
      in_flight.at(action.microbatch).gradient = std::move(message.tensor);
      return;
    case Payload::kTiedGradient: model.parameters->gradient(0).add_(message.tensor); return;
    case Payload::kTiedWeight: return;
    case Payload::kNone: break;
  }
  check_failed(__FILE__, __LINE__, "a message without payload");
}

void Engine::Impl::start_send(const Action& action) {
  Message message;
  int peer = static_cast<int>(action.peer);
  switch (action.payload) {
    case Payload::kActivation:
      message.tensor = std::move(in_flight.at(action.microbatch).hidden);
      break;
    case Payload::kGradient: {  // the last that this stage does for the microbatch
      auto node = in_flight.extract(action.microbatch);
      message.tensor = node.mapped().gradient.contiguous();
      break;
    }
    case Payload::kTiedGradient: message.tensor = model.parameters->tied_gradient(); break;
    case Payload::kTiedWeight: message.tensor = owned_embedding(); break;
    case Payload::kNone: check_failed(__FILE__, __LINE__, "a message without payload");
  }
  if (is_tied(action.payload)) peer = is_first_stage ? 1 : 0;
  Communicator& group = model.groups->at(is_tied(action.payload) ? Axis::kTied : Axis::kPipeline);
  message.work = group.send(message.tensor.const_data_ptr(), message.tensor.numel(),
                            model.parameters->dtype(), peer, label_of(action.payload));
  sends[{action.payload, action.microbatch}] = std::move(message);
}

void Engine::Impl::finish_send(const Action& action) {
  const MessageKey key{action.payload, action.microbatch};
  sends.at(key).work->wait();
  sends.erase(key);
}

void Engine::Impl::forward(const Action& action) {
  InFlight& flight = admit(action.microbatch);
  const auto position = static_cast<size_t>(action.layer - first_layer);
  const bool is_head = is_last_stage && action.layer == last_layer;

  Call call;
  std::vector<at::Tensor> inputs;
  if (is_first_stage && action.layer == first_layer) {
    inputs = {flight.tokens};
  } else {
    call.input = std::move(flight.hidden);
    SMP_CHECK(call.input.defined());
    call.input.requires_grad_(true);
    inputs = {call.input};
    if (is_head) inputs.push_back(flight.targets);
  }
  {
    const CategoryScope category(MemoryCategory::kActivations);
    call.output = model.layers.at(position)->forward(inputs).at(0);
  }
  if (is_head) {
    loss_sum += call.output.item<double>();
  } else {
    flight.hidden = call.output.detach();
  }
  SMP_CHECK_EQ(flight.calls.size(), position);
  flight.calls.push_back(std::move(call));
  buckets.poll();
}

void Engine::Impl::backward(const Action& action) {
  InFlight& flight = in_flight.at(action.microbatch);
  SMP_CHECK_EQ(static_cast<int64_t>(flight.calls.size()), action.layer - first_layer + 1);
  Call call = std::move(flight.calls.back());
  flight.calls.pop_back();

  at::Tensor gradient = is_last_stage && action.layer == last_layer
                            ? at::full({}, loss_scale(), options())
                            : std::exchange(flight.gradient, at::Tensor());
  SMP_CHECK(gradient.defined());
  if (call.input.defined()) {
    flight.gradient = torch::autograd::grad({call.output}, {call.input}, {gradient}).at(0);
  } else {
    torch::autograd::backward({call.output}, {gradient});
    in_flight.erase(action.microbatch);
  }
  buckets.poll();
}

// Ranks that hold a copy of the same KV head each have the gradient from their own query heads.
void Engine::Impl::reduce_kv(const Action& action) {
  const auto [begin, end] = kv_range(layout, action.layer);
  const DType dtype = model.parameters->dtype();
  void* range = static_cast<char*>(model.parameters->gradients().mutable_data_ptr()) +
                begin * bytes_of(dtype);
  model.groups->at(Axis::kKvHead)
      .all_reduce(range, range, end - begin, dtype, ReduceOp::kSum, "tensor.kv_gradients")
      ->wait();
}

// Norm and loss travel together: one message a step tells every rank how to clip, what to print and
// whether to stop. Each gradient element and each sample's loss enters on one rank only.
void Engine::Impl::update() {
  const bool counts_loss = is_last_stage && layout.coord.tensor == 0;
  double sums[2] = {model.optimizer->local_norm_squared(),
                    counts_loss ? loss_sum * loss_scale() : 0.0};
  if (model.groups->world().size() > 1) {
    model.groups->world()
        .all_reduce(sums, sums, 2, DType::kF64, ReduceOp::kSum, "step.norm_and_loss")
        ->wait();
  }
  result.grad_norm = std::sqrt(sums[0]);
  result.loss = sums[1];
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    throw TrainingError(fmt::format(
        "step {}: the loss is {} and the gradient norm {}; training cannot go on. Try a lower "
        "training.optimizer.learning_rate (here {}) or more warmup_steps",
        step_index + 1, result.loss, result.grad_norm, learning_rate));
  }
  // As torch.nn.utils.clip_grad_norm_: with 1e-6 beside the norm, and never enlarging.
  const double limit = plan.job.training.optimizer.gradient_clipping;
  const double scale = limit > 0 ? std::min(1.0, limit / (result.grad_norm + 1e-6)) : 1.0;
  model.optimizer->step(learning_rate, scale);
}

// Messages under way still read and write our buffers: the peers are told, which ends the messages,
// and only then may the buffers go.
void Engine::Impl::abandon(const std::string& reason) {
  model.groups->abort(to_string(ledger.phase()) + ": " + reason);
  for (auto* messages : {&receives, &sends}) {
    for (auto& [key, message] : *messages) wait_in_vain(message.work);
  }
  buckets.abandon();
}

Engine::Engine(const Plan& plan, ParallelModel& model, MemoryLedger& ledger,
               ReadSamples read_samples)
    : impl_(std::make_unique<Impl>(plan, model, ledger, std::move(read_samples))) {}

Engine::~Engine() = default;

StepResult Engine::step(int64_t step, double learning_rate) {
  Impl& self = *impl_;
  self.step_index = step;
  self.learning_rate = learning_rate;
  self.loss_sum = 0;
  self.result = {};
  self.enter("zero gradients", {});
  self.model.parameters->zero_gradients();
  try {
    for (const Action& action : self.model.actions) self.execute(action);
  } catch (const std::exception& error) {
    self.abandon(error.what());
    throw;
  }
  SMP_CHECK(self.in_flight.empty() && self.receives.empty() && self.sends.empty());
  return self.result;
}

}  // namespace smp
