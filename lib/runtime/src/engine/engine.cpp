#include "smp/runtime/engine/engine.h"

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "engine/data_parallel_sync.h"
#include "engine/finite_check.h"
#include "engine/layer_calls.h"
#include "engine/microbatch.h"
#include "engine/pipeline_messages.h"
#include "engine/router_loads.h"
#include "engine/step_update.h"
#include "smp/plan/base/check.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/runinfo/step_trace.h"

namespace smp::engine {
namespace {

// A layer's K and V weights are adjacent in memory, and so are their biases. Returns the index of
// the first one and the elements of both; 0 elements if the layer has none.
std::pair<int64_t, int64_t> kv_parameters(const layout::RankLayout& layout, int64_t layer,
                                          bool biases) {
  int64_t first = -1, elements = 0;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const layout::PlacedParameter& parameter = layout.parameters[i];
    if (parameter.layer != layer || parameter.spec.split != model::TensorSplit::kKvHeads) continue;
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
  Impl(const Plan& the_plan, parallel::ParallelModel& the_model, ledger::MemoryLedger& the_ledger,
       ReadSamples read_samples)
      : plan(the_plan),
        model(the_model),
        ledger(the_ledger),
        calls(the_plan, the_model, microbatches, std::move(read_samples)),
        messages(layout::chunk_ends(the_plan, the_model.parameters->layout()), the_model,
                 microbatches),
        data_parallel(*the_model.parameters, *the_model.groups),
        update(the_plan, the_model) {}

  const Plan& plan;
  parallel::ParallelModel& model;
  ledger::MemoryLedger& ledger;
  Microbatches microbatches;
  LayerCalls calls;
  PipelineMessages messages;
  DataParallelSync data_parallel;
  StepUpdate update;

  // of the current step
  int64_t step_index = 0;
  double learning_rate = 0;
  StepResult result;

  std::vector<schedule::Action> evaluation;  // made when first asked for
  double accuracy = 0;
  int64_t counted = 0;

  void execute_all(const std::vector<schedule::Action>& actions);
  void execute(const schedule::Action& action);
  void dispatch(const schedule::Action& action);
  void enter(const char* phase, const schedule::Action& action);
  // Whether a bucket's reduction is the step's first one of that bucket, and whether an action is
  // of the last microbatch. A bucket is reduced once a step, or once for each microbatch.
  bool is_first(const schedule::Action& action) const {
    return action.microbatch <= 0 || action.bucket == model.parameters->layout().persistent_bucket;
  }
  bool is_last(const schedule::Action& action) const {
    return action.microbatch < 0 || action.microbatch + 1 == *plan.job.training.microbatches;
  }
  // Whether this is the embedding's last backward on a stage that also has the tied head: the
  // head's part of the gradient is then added.
  bool completes_tied(const schedule::Action& action) const {
    return model.parameters->layout().tied_gradient_apart && action.layer == 0 && is_last(action);
  }
  void update_all();
  void gather_updated();
  void reduce_kv(const schedule::Action& action);
  void begin();
  [[noreturn]] void stop_not_finite(const NotFinite& error);
  void abandon(const std::string& reason);
};

void Engine::Impl::enter(const char* phase, const schedule::Action& action) {
  const ledger::Phase now{phase, step_index + 1, action.microbatch, action.layer};
  ledger.set_phase(now);
  model.host->set_phase(now);
}

void Engine::Impl::execute(const schedule::Action& action) {
  runinfo::StepTracer* const tracer = model.groups->tracer();
  if (tracer == nullptr || !tracer->is_on()) return dispatch(action);
  const size_t slice = tracer->begin_action(action);
  dispatch(action);
  tracer->end_action(slice, ledger.live_bytes());
}

void Engine::Impl::dispatch(const schedule::Action& action) {
  switch (action.kind) {
    case schedule::ActionKind::kReceive:
      enter("receive", action);
      return messages.start_receive(action);
    case schedule::ActionKind::kReceiveWait:
      enter("receive", action);
      return messages.finish_receive(action);
    case schedule::ActionKind::kSend: enter("send", action); return messages.start_send(action);
    case schedule::ActionKind::kSendWait:
      enter("send", action);
      return messages.finish_send(action);
    case schedule::ActionKind::kForward: enter("forward", action); return calls.forward(action);
    case schedule::ActionKind::kBackward:
      enter("backward", action);
      calls.backward(action);
      if (completes_tied(action)) model.parameters->add_tied_gradient();
      return;
    case schedule::ActionKind::kWeight: enter("weight", action); return calls.weight(action);
    case schedule::ActionKind::kRecompute:
      enter("recompute", action);
      return calls.recompute(action);
    case schedule::ActionKind::kOffload: enter("offload", action); return calls.offload(action);
    case schedule::ActionKind::kFetch: enter("fetch", action); return calls.fetch(action);
    case schedule::ActionKind::kRouterLoads:
      enter("router loads", action);
      return sum_router_loads(plan, model);
    case schedule::ActionKind::kReduceKv: enter("reduce", action); return reduce_kv(action);
    case schedule::ActionKind::kReduce:
      enter("reduce", action);
      return data_parallel.start_reduce(action.bucket, is_first(action));
    case schedule::ActionKind::kReduceWait:
      enter("reduce", action);
      return data_parallel.finish_reduce(action.bucket, is_first(action));
    case schedule::ActionKind::kReduceReplicas:
      enter("reduce", action);
      return data_parallel.start_replicas(action.bucket);
    case schedule::ActionKind::kReduceReplicasWait:
      enter("reduce", action);
      return data_parallel.finish_replicas(action.bucket);
    case schedule::ActionKind::kGradientNorm:
      enter("gradient norm", action);
      return update.start_norms(action.bucket);
    case schedule::ActionKind::kStep:
      enter("step", action);
      result = update.agree(calls.loss(), calls.further_losses(), calls.counted());
      return;
    case schedule::ActionKind::kUpdate:
      enter("update", action);
      if (action.bucket < 0) return update_all();
      update.update(action.bucket);
      return data_parallel.updated(action.bucket);
    case schedule::ActionKind::kGather:
      enter("gather", action);
      return data_parallel.start_gather(action.bucket);
    case schedule::ActionKind::kGatherWait:
      enter("gather", action);
      return data_parallel.finish_gather(action.bucket);
    case schedule::ActionKind::kFree:
      // A no-op here. kFree marks the end of use of a bucket's gathered weights, for the proof of
      // the schedule (schedule_stage_check.cpp). The layout gives the buffer to several buckets in
      // turn, and the next kGather into it overwrites the weights.
      return;
  }
  check_failed(__FILE__, __LINE__, "unknown action");
}

// Updates the buckets of the first layers first, because peers gather them first.
void Engine::Impl::update_all() {
  auto bucket = static_cast<int64_t>(model.parameters->layout().scheduled);
  while (bucket-- > 0) {
    update.update(bucket);
    data_parallel.updated(bucket);
  }
}

// The next step begins with the gathers that this one has left, and ends them before its updates.
void Engine::Impl::gather_updated() {
  const bool are_whole = !model.parameters->layout().shards_weights();
  for (const schedule::Action& action : model.actions) {
    if (!are_whole || action.kind == schedule::ActionKind::kUpdate) break;
    if (action.kind == schedule::ActionKind::kGather) data_parallel.start_gather(action.bucket);
    if (action.kind == schedule::ActionKind::kGatherWait)
      data_parallel.finish_gather(action.bucket);
  }
  data_parallel.release_weights();
}

// Ranks with a copy of the same KV head each have the gradient of their own query heads. The sum is
// the KV head's gradient.
void Engine::Impl::reduce_kv(const schedule::Action& action) {
  for (const bool biases : {false, true}) {
    const auto [first, elements] = kv_parameters(model.parameters->layout(), action.layer, biases);
    if (elements == 0) continue;
    void* range = model.parameters->gradient(first).mutable_data_ptr();
    model.groups->at(mesh::Axis::kKvHead)
        .all_reduce(range, range, elements, model.parameters->gradient_dtype(),
                    comm::ReduceOp::kSum, "tensor.kv_gradients")
        ->wait();
  }
}

void Engine::Impl::begin() {
  calls.begin_step(step_index, false);
  calls.scale_loss(model.loss_scale.value());
  result = {};
  forget_router_loads(model);
  enter("zero gradients", {});
  model.parameters->zero_gradients();
  update.begin(step_index, learning_rate);
}

// All ranks call this together, and no weight has been updated with a non-finite number. So the
// step can run again, without its updates and with a check of every tensor.
void Engine::Impl::stop_not_finite(const NotFinite& error) {
  std::string first;
  try {
    FiniteCheck check(plan, model);
    check.weights();
    calls.watch(&check);
    begin();
    for (const schedule::Action& action : model.actions) {
      if (action.kind == schedule::ActionKind::kStep) break;
      if (action.kind != schedule::ActionKind::kUpdate) execute(action);
    }
    gather_updated();
    check.gradients();
    first = check.first_of_all();
  } catch (const std::exception& second) {
    abandon(second.what());
    throw;
  }
  enter("step", {});
  throw optim::TrainingError(
      fmt::format("{}; training stopped; {}. Lower training.optimizer.learning_rate (now {}) or "
                  "raise training.optimizer.warmup_steps",
                  error.what(), first, learning_rate));
}

// Messages in flight still read and write this rank's buffers. The abort tells the peers and ends
// the messages; only then may the buffers be freed.
void Engine::Impl::abandon(const std::string& reason) {
  model.groups->abort(to_string(ledger.phase()) + ": " + reason);
  messages.abandon();
  data_parallel.abandon();
}

Engine::Engine(const Plan& plan, parallel::ParallelModel& model, ledger::MemoryLedger& ledger,
               ReadSamples read_samples)
    : impl_(std::make_unique<Impl>(plan, model, ledger, std::move(read_samples))) {}

Engine::~Engine() = default;

void Engine::Impl::execute_all(const std::vector<schedule::Action>& actions) {
  const c10::InferenceMode no_autograd;  // autograd's bookkeeping of each call is not needed
  try {
    for (const schedule::Action& action : actions) execute(action);
  } catch (const NotFinite&) {
    throw;  // all ranks throw it, after their last message
  } catch (const NoTargetCounts&) {
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
  } catch (const NoTargetCounts& error) {
    wait_all();
    throw optim::TrainingError(error.what());
  }
  return self.result;
}

void Engine::wait_all() {
  Impl& self = *impl_;
  self.enter("gather", {});
  try {
    self.gather_updated();
  } catch (const std::exception& error) {
    self.abandon(error.what());
    throw;
  }
}

double Engine::evaluate(int64_t step) {
  Impl& self = *impl_;
  wait_all();
  if (self.evaluation.empty()) {
    schedule::ScheduleParameters parameters = layout::schedule_parameters(self.plan);
    parameters.shape.forward_only = true;
    const mesh::Coord& coord = self.model.parameters->layout().coord;
    self.evaluation = std::move(
        schedule::make_schedule(parameters).actions.at(static_cast<size_t>(coord.pipeline)));
  }
  self.step_index = step;
  self.calls.begin_step(step, true);
  self.execute_all(self.evaluation);
  self.enter("evaluate", {});
  const bool counts = self.model.parameters->layout().coord.tensor == 0;
  double sums[3] = {counts ? self.calls.loss() : 0.0, counts ? self.calls.correct() : 0.0,
                    counts ? static_cast<double>(self.calls.counted()) : 0.0};
  comm::Communicator& world = self.model.groups->world();
  if (world.size() > 1) {
    world.all_reduce(sums, sums, 3, DType::kF64, comm::ReduceOp::kSum, "evaluate.loss")->wait();
  }
  self.accuracy = sums[1] / static_cast<double>(*self.plan.job.training.global_batch);
  self.counted = static_cast<int64_t>(sums[2]);
  return sums[0];
}

}  // namespace smp::engine
