#include "smp/runtime/engine.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bucket_traffic.h"
#include "layer_calls.h"
#include "microbatch.h"
#include "pipeline_messages.h"
#include "smp/plan/check.h"

namespace smp {
namespace {

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
        ledger(the_ledger),
        calls(the_plan, the_model, microbatches, std::move(read_samples)),
        messages(the_plan, the_model, microbatches),
        buckets(*the_model.parameters, *the_model.groups) {}

  const Plan& plan;
  ParallelModel& model;
  MemoryLedger& ledger;
  Microbatches microbatches;
  LayerCalls calls;
  PipelineMessages messages;
  BucketTraffic buckets;

  // of the step under way
  int64_t step_index = 0;
  double learning_rate = 0;
  StepResult result;

  void execute(const Action& action);
  void enter(const char* phase, const Action& action);
  void reduce_kv(const Action& action);
  void update();
  void abandon(const std::string& reason);
};

void Engine::Impl::enter(const char* phase, const Action& action) {
  ledger.set_phase({phase, step_index + 1, action.microbatch, action.layer});
}

void Engine::Impl::execute(const Action& action) {
  switch (action.kind) {
    case ActionKind::kReceive: enter("receive", action); return messages.start_receive(action);
    case ActionKind::kReceiveWait: enter("receive", action); return messages.finish_receive(action);
    case ActionKind::kSend: enter("send", action); return messages.start_send(action);
    case ActionKind::kSendWait: enter("send", action); return messages.finish_send(action);
    case ActionKind::kForward:
      enter("forward", action);
      calls.forward(action);
      return buckets.poll();
    case ActionKind::kBackward:
      enter("backward", action);
      calls.backward(action);
      return buckets.poll();
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

// Ranks that hold a copy of the same KV head each have the gradient from their own query heads.
void Engine::Impl::reduce_kv(const Action& action) {
  const auto [begin, end] = kv_range(model.parameters->layout(), action.layer);
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
  const Coord& coord = model.parameters->layout().coord;
  const bool counts_loss = coord.pipeline + 1 == plan.degrees.pipeline && coord.tensor == 0;
  double sums[2] = {model.optimizer->local_norm_squared(), counts_loss ? calls.loss() : 0.0};
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
  messages.abandon();
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
  self.calls.begin_step(step);
  self.result = {};
  self.enter("zero gradients", {});
  self.model.parameters->zero_gradients();
  try {
    for (const Action& action : self.model.actions) self.execute(action);
  } catch (const std::exception& error) {
    self.abandon(error.what());
    throw;
  }
  SMP_CHECK(self.microbatches.empty() && self.messages.empty());
  return self.result;
}

}  // namespace smp
