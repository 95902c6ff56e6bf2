#include "layer_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu.h"
#include "new_tensors.h"
#include "smp/plan/check.h"
#include "smp/plan/chunk_ends.h"
#include "smp/plan/data_files.h"
#include "smp/plan/errors.h"
#include "smp/plan/layer_tensors.h"
#include "smp/plan/schedule_of_plan.h"
#include "torch_dtype.h"

namespace smp {

LayerCalls::LayerCalls(const Plan& plan, ParallelModel& model, Microbatches& microbatches,
                       ReadSamples read_samples)
    : plan_(plan),
      model_(model),
      microbatches_(microbatches),
      read_(std::move(read_samples)),
      map_(plan.job, schedule_parameters(plan), model.parameters->layout()),
      micro_batch_(plan.job.training.micro_batch.value()),
      microbatch_count_(plan.job.training.microbatches.value()),
      data_rank_(model.parameters->layout().coord.data(plan.degrees)),
      call_(layer_call(plan, model.parameters->layout().coord.tensor)) {
  for (const LayerSpec& layer : model.parameters->layout().layers) {
    shared_inputs_.push_back(static_cast<size_t>(shared_inputs_of(plan.job.model, layer)));
  }
}

void LayerCalls::begin_step(int64_t step, bool evaluates) {
  step_ = step;
  evaluates_ = evaluates;
  loss_sum_ = correct_ = 0;
  counted_ = 0;
}

double LayerCalls::mean_factor() const {
  return 1.0 / static_cast<double>(microbatch_count_ * plan_.degrees.data());
}

int64_t LayerCalls::first_sample_of(const Action& action) const {
  return (data_rank_ * microbatch_count_ + action.microbatch) * micro_batch_;
}

// What the chunk has read is there.
CallContext LayerCalls::context_of(const Action& action) {
  CallContext context{.seed = plan_.job.training.seed,
                      .step = step_,
                      .first_sample = first_sample_of(action),
                      .trains = !evaluates_};
  const InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  if (const auto starts = flight.fields.find(BatchField::kDocumentStarts);
      starts != flight.fields.end()) {
    context.document_starts = &starts->second;
    context.document_starts_on_host = &flight.document_starts_on_host;
  }
  return context;
}

// What the chunk wants of the data.
void LayerCalls::read(const LayerPlace& place, const Action& action, InFlight& flight) {
  const CategoryScope category(MemoryCategory::kData);
  SampleBuffers buffers;
  for (const BatchField field : place.chunk_reads) {
    at::Tensor& tensor = flight.fields[field];
    tensor = empty_tensor(field_of(plan_.job.model, field, call_), at::kCPU);
    buffers.at(field) = tensor.mutable_data_ptr();
  }
  const int64_t first_sample = first_sample_of(action);
  read_(step_, first_sample, micro_batch_, buffers);
  for (auto& [field, tensor] : flight.fields) {
    check_integers(field, tensor, first_sample);
    if (field == BatchField::kDocumentStarts) flight.document_starts_on_host = tensor;
    tensor = tensor.to(device_of(model_.gpu.get()));
  }
}

// Tokens and labels, which layers take as rows of tables without asking again. What pads an
// evaluation has tokens, and no targets.
void LayerCalls::check_integers(BatchField field, const at::Tensor& tensor, int64_t first_sample) {
  if (tensor.is_floating_point()) return;
  if (field == BatchField::kDocumentStarts) return check_documents(tensor);
  const auto* values = tensor.const_data_ptr<int64_t>();
  const int64_t vocab_size = plan_.job.model.vocab_size;
  const bool is_target = field != BatchField::kTokens;
  const bool may_lack = is_target && (evaluates_ || counts_vary(plan_.job.training));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (is_target && values[i] == kNoTarget) {
      if (!may_lack) refuse_missing_target(first_sample + i / (tensor.numel() / micro_batch_));
      continue;
    }
    SMP_CHECK(values[i] >= 0 && values[i] < vocab_size);
    if (is_target) ++counted_;
  }
}

// Attention takes them as places in its rows: each is its own place, or that of the token before.
void LayerCalls::check_documents(const at::Tensor& starts) const {
  const auto* values = starts.const_data_ptr<int64_t>();
  const int64_t sequence = plan_.job.training.sequence_length;
  for (int64_t i = 0; i < starts.numel(); ++i) {
    const int64_t place = i % sequence;
    SMP_CHECK(values[i] == place || (place > 0 && values[i] == values[i - 1]));
  }
}

void LayerCalls::refuse_missing_target(int64_t sample) const {
  throw ConfigError(
      fmt::format("step {}: sample {} of the global batch has a token without a target, and the "
                  "job says that all count in the loss: set training.data.loss_mask: true, or "
                  "training.data.pack to documents or pad",
                  step_ + 1, sample));
}

KeptCall& LayerCalls::call_of(const Action& action) {
  return microbatches_.at(action.chunk, action.microbatch).calls.at(map_.of(action.layer).in_chunk);
}

std::vector<at::Tensor> LayerCalls::run(const Action& action, const std::vector<at::Tensor>& inputs,
                                        Saved* saved) {
  const CategoryScope category(MemoryCategory::kActivations);
  Layer& layer = *model_.layers[map_.of(action.layer).in_stage];
  return layer.forward(inputs, context_of(action), saved);
}

void LayerCalls::forward(const Action& action) {
  const LayerPlace& place = map_.of(action.layer);
  InFlight& flight = microbatches_.admit(action.chunk, action.microbatch);
  if (!place.chunk_reads.empty()) read(place, action, flight);

  std::vector<at::Tensor> inputs = std::exchange(flight.hidden, {});
  SMP_CHECK_EQ(inputs.empty(), place.is_first);
  if (place.reads) inputs.push_back(flight.fields.at(*place.reads));
  KeptCall call;
  const bool keeps_all = !place.is_recomputed && !evaluates_;
  std::vector<at::Tensor> outputs = run(action, inputs, keeps_all ? &call.saved : nullptr);
  if (!evaluates_) {
    SMP_CHECK_EQ(flight.calls.size(), place.in_chunk);
    call.shared.assign(inputs.end() - shared_inputs_.at(place.in_stage), inputs.end());
    if (place.keeps_input) call.inputs = std::move(inputs);
    if (place.is_thinned) model_.layers[place.in_stage]->thin(call.saved);
    flight.calls.push_back(std::move(call));
  }
  if (check_ != nullptr) check_->forward(action.microbatch, action.layer, outputs);
  if (place.makes_loss) {
    loss_sum_ += outputs.at(0).item<double>();
    if (outputs.size() > 1) correct_ += outputs[1].item<double>();
  } else if (place.hands_to >= 0) {
    microbatches_.admit(place.hands_to, action.microbatch).hidden = std::move(outputs);
  } else {
    flight.hidden = std::move(outputs);
  }
  // What is sent is in the way of nothing: the message takes it.
  if (evaluates_ && (place.makes_loss || place.hands_to >= 0)) {
    microbatches_.end_if_done(action.chunk, action.microbatch);
  }
}

void LayerCalls::recompute(const Action& action) {
  const LayerPlace& place = map_.of(action.layer);
  InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  KeptCall& call = call_of(action);
  if (place.is_thinned) {
    const CategoryScope category(MemoryCategory::kActivations);
    return model_.layers[place.in_stage]->complete(call.saved);
  }
  const std::vector<at::Tensor> inputs =
      std::exchange(place.keeps_input ? call.inputs : flight.again, {});
  std::vector<at::Tensor> outputs = run(action, inputs, &call.saved);
  if (place.feeds_recompute) flight.again = std::move(outputs);
}

// A layer that is computed again has its inputs there, any other all that it saved. What other
// layers use as well stays.
void LayerCalls::move(KeptCall& call, at::Device to) {
  const CategoryScope category(MemoryCategory::kActivations);
  for (std::vector<at::Tensor>* tensors : {&call.inputs, &call.saved}) {
    for (at::Tensor& tensor : *tensors) {
      const bool stays = std::any_of(call.shared.begin(), call.shared.end(),
                                     [&](const auto& shared) { return tensor.is_same(shared); });
      if (!tensor.defined() || stays) continue;
      at::Tensor moved = empty_tensor(tensor.sizes(), tensor.options().device(to));
      tensor = moved.copy_(tensor);
    }
  }
}

void LayerCalls::offload(const Action& action) {
  const LedgerScope host(*model_.host);
  move(call_of(action), at::kCPU);
}

void LayerCalls::fetch(const Action& action) { move(call_of(action), device_of(model_.gpu.get())); }

void LayerCalls::backward(const Action& action) {
  const LayerPlace& place = map_.of(action.layer);
  InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  SMP_CHECK_EQ(flight.calls.size(), place.in_chunk + 1);
  Saved saved = std::move(flight.calls.back().saved);
  const std::vector<at::Tensor> shared = std::move(flight.calls.back().shared);
  flight.calls.pop_back();

  std::vector<at::Tensor> gradients = std::exchange(flight.gradients, {});
  if (place.makes_loss) {
    const auto options =
        at::TensorOptions().dtype(scalar_type_of(model_.parameters->gradient_dtype()));
    gradients = {full_tensor({}, mean_factor() * loss_scale_, options)};
  }
  SMP_CHECK(!gradients.empty());
  WeightWork* const later = map_.puts_weights_off() ? &flight.put_off.emplace_back() : nullptr;
  gradients = model_.layers[place.in_stage]->backward(std::move(saved), std::move(gradients),
                                                      context_of(action), later);
  if (check_ != nullptr) check_->backward(action.microbatch, action.layer, gradients);
  if (place.reads) gradients.pop_back();
  if (place.takes_from >= 0) {
    microbatches_.at(place.takes_from, action.microbatch).gradients = std::move(gradients);
  } else if (!place.is_first) {
    flight.gradients = std::move(gradients);
  }
  if (place.opens_chunk) microbatches_.end_if_done(action.chunk, action.microbatch);
}

// The layers' come in the order of their backwards.
void LayerCalls::weight(const Action& action) {
  InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  flight.put_off.front().run();
  flight.put_off.pop_front();
  microbatches_.end_if_done(action.chunk, action.microbatch);
}

}  // namespace smp
