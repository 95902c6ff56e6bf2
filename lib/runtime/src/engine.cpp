#include "smp/runtime/engine.h"

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "bucket_traffic.h"
#include "finite_check.h"
#include "layer_calls.h"
#include "microbatch.h"
#include "pipeline_messages.h"
#include "smp/plan/check.h"
#include "smp/plan/chunk_ends.h"
#include "smp/plan/schedule_of_plan.h"
#include "smp/plan/step_trace.h"
#include "step_update.h"

namespace smp {
namespace {

// A layer's K and V weights are neighbours in memory, and so are their biases: the first one's
// index, and the elements of both; no elements where there are none.
std::pair<int64_t, int64_t> kv_parameters(const RankLayout& layout, int64_t layer, bool biases) {
  int64_t first = -1, elements = 0;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const PlacedParameter& parameter = layout.parameters[i];
    if (parameter.layer != layer || parameter.spec.split != TensorSplit::kKvHeads) continue;
    if (parameter.spec.is_vector != biases) continue;
    if (first < 0) first = static_cast<int64_t>(i);
    SMP_CHECK_EQ(parameter.offset, layout.parameters[static_cast<size_t>(first)].offset + elements);
    elements += parameter.box.size();
  }
  SMP_CHECK(first >= 0 || biases);
  return {first, elements};
}

}  // namespace

struct Engine::Impl {
  Impl(const Plan& the_plan, ParallelModel& the_model, MemoryLedger& the_ledger,
       ReadSamples read_samples)
      : plan(the_plan),
        model(the_model),
        ledger(the_ledger),
        calls(the_plan, the_model, microbatches, std::move(read_samples)),
        messages(chunk_ends(the_plan, the_model.parameters->layout()), the_model, microbatches),
        buckets(*the_model.parameters, *the_model.groups),
        update(the_plan, the_model) {}

  const Plan& plan;
  ParallelModel& model;
  MemoryLedger& ledger;
  Microbatches microbatches;
  LayerCalls calls;
  PipelineMessages messages;
  BucketTraffic buckets;
  StepUpdate update;

  // of the step under way
  int64_t step_index = 0;
  double learning_rate = 0;
  StepResult result;

  std::vector<Action> evaluation;  // made when first asked for
  double accuracy = 0;
  int64_t counted = 0;

  void execute_all(const std::vector<Action>& actions);
  void execute(const Action& action);
  void carry_out(const Action& action);
  void enter(const char* phase, const Action& action);
  // Whether a bucket's reduction is that of the step's first microbatch, or of all at once; of the
  // last.
  bool is_first(const Action& action) const {
    return action.microbatch <= 0 || action.bucket == model.parameters->layout().persistent_bucket;
  }
  bool is_last(const Action& action) const {
    return action.microbatch < 0 || action.microbatch + 1 == *plan.job.training.microbatches;
  }
  // The embedding's last backward, where the head's part of its gradient waits on the same stage.
  bool completes_tied(const Action& action) const {
    return model.parameters->layout().tied_gradient_apart && action.layer == 0 && is_last(action);
  }
  void finish_reduce(int64_t bucket);
  void update_all();
  void reduce_kv(const Action& action);
  void begin();
  [[noreturn]] void stop_not_finite(const NotFinite& error);
  void abandon(const std::string& reason);
};

void Engine::Impl::enter(const char* phase, const Action& action) {
  const Phase now{phase, step_index + 1, action.microbatch, action.layer};
  ledger.set_phase(now);
  model.host->set_phase(now);
}

void Engine::Impl::execute(const Action& action) {
  StepTracer* const tracer = model.groups->tracer();
  if (tracer == nullptr || !tracer->is_on()) return carry_out(action);
  const size_t slice = tracer->begin_action(action);
  carry_out(action);
  tracer->end_action(slice, ledger.live_bytes());
}

void Engine::Impl::carry_out(const Action& action) {
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
      if (completes_tied(action)) model.parameters->add_tied_gradient();
      return buckets.poll();
    case ActionKind::kWeight:
      enter("weight", action);
      calls.weight(action);
      return buckets.poll();
    case ActionKind::kRecompute:
      enter("recompute", action);
      calls.recompute(action);
      return buckets.poll();
    case ActionKind::kOffload: enter("offload", action); return calls.offload(action);
    case ActionKind::kFetch: enter("fetch", action); return calls.fetch(action);
    case ActionKind::kReduceKv: enter("reduce", action); return reduce_kv(action);
    case ActionKind::kReduce:
      enter("reduce", action);
      return buckets.start_reduce(action.bucket, is_first(action), is_last(action));
    case ActionKind::kReduceWait: enter("reduce", action); return finish_reduce(action.bucket);
    case ActionKind::kStep:
      enter("step", action);
      buckets.finish_reductions();
      result = update.agree(calls.loss(), calls.counted());
      return;
    case ActionKind::kUpdate:
      enter("update", action);
      if (action.bucket < 0) return update_all();
      buckets.wait_sums(action.bucket);
      update.update(action.bucket);
      return buckets.updated(action.bucket);
    case ActionKind::kGather: enter("gather", action); return buckets.start_gather(action.bucket);
    case ActionKind::kGatherWait:
      enter("gather", action);
      return buckets.wait_gather(action.bucket);
    case ActionKind::kFree: return;  // the schedule's word that the buffer may take others
  }
  check_failed(__FILE__, __LINE__, "unknown action");
}

// Sharded gradients are waited for between layers, to have their buffer, and maybe for their first
// half; all others after the last layer. Once all has been started there is nothing to do then
// until the last sums are there but to start the norms of those before them.
void Engine::Impl::finish_reduce(int64_t bucket) {
  const bool are_whole = !model.parameters->layout().shards_gradients();
  buckets.wait_reduce(bucket);
  if (!are_whole) return;
  buckets.poll();
  if (!buckets.has_second_halves_to_start()) update.reduced(bucket);
}

// Those of the first layers first: peers want them first.
void Engine::Impl::update_all() {
  auto bucket = static_cast<int64_t>(model.parameters->layout().buckets.size());
  while (bucket-- > 0) {
    update.update(bucket);
    buckets.updated(bucket);
  }
}

// Ranks that hold a copy of the same KV head each have the gradient from their own query heads.
void Engine::Impl::reduce_kv(const Action& action) {
  for (const bool biases : {false, true}) {
    const auto [first, elements] = kv_parameters(model.parameters->layout(), action.layer, biases);
    if (elements == 0) continue;
    void* range = model.parameters->gradient(first).mutable_data_ptr();
    model.groups->at(Axis::kKvHead)
        .all_reduce(range, range, elements, model.parameters->gradient_dtype(), ReduceOp::kSum,
                    "tensor.kv_gradients")
        ->wait();
  }
}

void Engine::Impl::begin() {
  calls.begin_step(step_index, false);
  calls.scale_loss(model.loss_scale.value());
  result = {};
  enter("zero gradients", {});
  model.parameters->zero_gradients();
  update.begin(step_index, learning_rate);
}

// All ranks come here alike and no number that is not finite was put into a weight, so the step
// runs again without its updates, now with every tensor looked at.
void Engine::Impl::stop_not_finite(const NotFinite& error) {
  std::string first;
  try {
    FiniteCheck check(plan, model);
    check.weights();
    calls.watch(&check);
    begin();
    for (const Action& action : model.actions) {
      if (action.kind == ActionKind::kStep) break;
      if (action.kind != ActionKind::kUpdate) execute(action);
    }
    buckets.finish_gathers();
    check.gradients();
    first = check.first_of_all();
  } catch (const std::exception& second) {
    abandon(second.what());
    throw;
  }
  enter("step", {});
  throw TrainingError(fmt::format(
      "{}; training cannot go on; {}. Try a lower training.optimizer.learning_rate (here {}) or "
      "more warmup_steps",
      error.what(), first, learning_rate));
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

void Engine::Impl::execute_all(const std::vector<Action>& actions) {
  const c10::InferenceMode no_autograd;  // its bookkeeping of each call would cost more than ours
  try {
    for (const Action& action : actions) execute(action);
  } catch (const NotFinite&) {
    throw;  // of all ranks, after their last message
  } catch (const NothingCounts&) {
    throw;  // likewise
  } catch (const std::exception& error) {
    abandon(error.what());
    throw;
  }
  SMP_CHECK(microbatches.empty() && messages.empty());
}

double Engine::accuracy() const { return impl_->accuracy; }
int64_t Engine::counted() const { return impl_->counted; }

StepResult Engine::step(int64_t step, double learning_rate) {
  Impl& self = *impl_;
  self.step_index = step;
  self.learning_rate = learning_rate;
  try {
    self.begin();
    self.execute_all(self.model.actions);
  } catch (const NotFinite& error) {
    self.stop_not_finite(error);
  } catch (const NothingCounts& error) {
    settle();
    throw TrainingError(error.what());
  }
  return self.result;
}

void Engine::settle() {
  Impl& self = *impl_;
  self.enter("gather", {});
  try {
    self.buckets.finish_gathers();
  } catch (const std::exception& error) {
    self.abandon(error.what());
    throw;
  }
}

double Engine::evaluate(int64_t step) {
  Impl& self = *impl_;
  settle();
  if (self.evaluation.empty()) {
    ScheduleParameters parameters = schedule_parameters(self.plan);
    parameters.shape.forward_only = true;
    const Coord& coord = self.model.parameters->layout().coord;
    self.evaluation =
        std::move(make_schedule(parameters).actions.at(static_cast<size_t>(coord.pipeline)));
  }
  self.step_index = step;
  self.calls.begin_step(step, true);
  self.execute_all(self.evaluation);
  self.enter("evaluate", {});
  const bool counts = self.model.parameters->layout().coord.tensor == 0;
  double sums[3] = {counts ? self.calls.loss() : 0.0, counts ? self.calls.correct() : 0.0,
                    counts ? static_cast<double>(self.calls.counted()) : 0.0};
  Communicator& world = self.model.groups->world();
  if (world.size() > 1) {
    world.all_reduce(sums, sums, 3, DType::kF64, ReduceOp::kSum, "evaluate.loss")->wait();
  }
  self.accuracy = sums[1] / static_cast<double>(*self.plan.job.training.global_batch);
  self.counted = static_cast<int64_t>(sums[2]);
  return sums[0];
}

}  // namespace smp
