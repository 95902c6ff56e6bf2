#include "layer_calls.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <utility>

#include "smp/plan/check.h"
#include "torch_dtype.h"

namespace smp {

LayerCalls::LayerCalls(const Plan& plan, ParallelModel& model, Microbatches& microbatches,
                       ReadSamples read_samples)
    : plan_(plan),
      model_(model),
      microbatches_(microbatches),
      read_(std::move(read_samples)),
      micro_batch_(plan.job.training.micro_batch.value()),
      microbatch_count_(plan.job.training.microbatches.value()),
      sequence_(plan.job.training.sequence_length),
      data_rank_(model.parameters->layout().coord.data(plan.degrees)),
      first_layer_(model.parameters->layout().layers.front().index),
      last_layer_(model.parameters->layout().layers.back().index),
      is_first_stage_(model.parameters->layout().coord.pipeline == 0),
      is_last_stage_(model.parameters->layout().coord.pipeline + 1 == plan.degrees.pipeline) {}

void LayerCalls::begin_step(int64_t step) {
  step_ = step;
  loss_sum_ = 0;
}

double LayerCalls::loss_scale() const {
  return 1.0 / static_cast<double>(microbatch_count_ * plan_.degrees.data());
}

size_t LayerCalls::position_of(const Action& action) const {
  return static_cast<size_t>(action.layer - first_layer_);
}

// The microbatch's place on this stage, with what the stage reads of the data.
InFlight& LayerCalls::admit(const Action& action) {
  const bool is_fresh = !microbatches_.has(action.chunk, action.microbatch) ||
                        microbatches_.at(action.chunk, action.microbatch).calls.empty();
  InFlight& flight = microbatches_.admit(action.chunk, action.microbatch);
  if (!is_fresh || (!is_first_stage_ && !is_last_stage_)) return flight;
  const CategoryScope category(MemoryCategory::kData);
  const auto integers = at::TensorOptions().dtype(at::kLong);
  flight.tokens = at::empty({micro_batch_, sequence_}, integers);
  flight.targets = at::empty({micro_batch_, sequence_}, integers);
  const int64_t first_sample = (data_rank_ * microbatch_count_ + action.microbatch) * micro_batch_;
  read_(step_, first_sample, micro_batch_, flight.tokens.mutable_data_ptr<int64_t>(),
        flight.targets.mutable_data_ptr<int64_t>());
  if (!is_first_stage_) flight.tokens.reset();
  if (!is_last_stage_) flight.targets.reset();
  return flight;
}

void LayerCalls::forward(const Action& action) {
  InFlight& flight = admit(action);
  const size_t position = position_of(action);
  const bool is_head = is_last_stage_ && action.layer == last_layer_;
  const bool is_embedding = is_first_stage_ && action.layer == first_layer_;

  std::vector<at::Tensor> inputs =
      is_embedding ? std::vector<at::Tensor>{flight.tokens} : std::exchange(flight.hidden, {});
  SMP_CHECK(!inputs.empty() && inputs.front().defined());
  if (is_head) inputs.push_back(flight.targets);
  Call call;
  {
    const CategoryScope category(MemoryCategory::kActivations);
    call.outputs = model_.layers.at(position)->forward(inputs, &call.saved);
  }
  if (is_head) {
    loss_sum_ += call.outputs.at(0).item<double>();
  } else {
    flight.hidden = call.outputs;
  }
  SMP_CHECK_EQ(flight.calls.size(), position);
  flight.calls.push_back(std::move(call));
}

void LayerCalls::backward(const Action& action) {
  InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  const size_t position = position_of(action);
  SMP_CHECK_EQ(flight.calls.size(), position + 1);
  Call call = std::move(flight.calls.back());
  flight.calls.pop_back();

  std::vector<at::Tensor> gradients = std::exchange(flight.gradients, {});
  if (is_last_stage_ && action.layer == last_layer_) {
    const auto options = at::TensorOptions().dtype(scalar_type_of(model_.parameters->dtype()));
    gradients = {at::full({}, loss_scale(), options)};
  }
  SMP_CHECK(!gradients.empty() && gradients.front().defined());
  flight.gradients =
      model_.layers.at(position)->backward(std::move(call.saved), std::move(gradients), nullptr);
  if (is_first_stage_ && action.layer == first_layer_) {
    microbatches_.end(action.chunk, action.microbatch);
  }
}

}  // namespace smp
