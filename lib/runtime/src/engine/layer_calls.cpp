#include "engine/layer_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/gpu.h"
#include "ledger/tensor_factories.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/layer_tensors.h"

namespace smp::engine {

namespace {

// Of samples [b, s] the tokens of the slices.
at::Tensor taken(const at::Tensor& samples, const model::TokenSlices& slices) {
  const int64_t length = slices.length;
  at::Tensor tokens = ledger::empty_tensor({samples.size(0), 2 * length}, samples.options());
  tokens.narrow(1, 0, length).copy_(samples.narrow(1, slices.early, length));
  tokens.narrow(1, length, length).copy_(samples.narrow(1, slices.late, length));
  return tokens;
}

// Of samples [b, s] what is `ahead` of the tokens of the slices, into [b, their number]: none where
// that is in another sample, or in another document (`starts`: kDocumentStarts of whole samples;
// undefined: each is one).
void take_ahead(const at::Tensor& samples, const at::Tensor& starts, int64_t ahead,
                const model::TokenSlices& slices, const at::Tensor& taken) {
  const int64_t length = samples.size(1);
  const auto* from = samples.const_data_ptr<int64_t>();
  const int64_t* start = starts.defined() ? starts.const_data_ptr<int64_t>() : nullptr;
  auto* to = taken.mutable_data_ptr<int64_t>();
  for (int64_t sample = 0; sample < samples.size(0); ++sample) {
    for (int64_t i = 0; i < taken.size(1); ++i) {
      const int64_t position = slices.position(i);
      const int64_t at = sample * length + position + ahead;
      const bool is_there =
          position + ahead < length && (start == nullptr || start[at] <= position);
      *to++ = is_there ? from[at] : data::kNoTarget;
    }
  }
}

}  // namespace

LayerCalls::LayerCalls(const Plan& plan, parallel::ParallelModel& model, Microbatches& microbatches,
                       ReadSamples read_samples)
    : plan_(plan),
      model_(model),
      microbatches_(microbatches),
      read_(std::move(read_samples)),
      map_(plan.job, layout::schedule_parameters(plan), model.parameters->layout()),
      micro_batch_(plan.job.training.micro_batch.value()),
      microbatch_count_(plan.job.training.microbatches.value()),
      data_rank_(model.parameters->layout().coord.data(plan.degrees)),
      call_(layout::layer_call(plan, model.parameters->layout().coord.tensor,
                               model.parameters->layout().coord.context)) {
  for (const model::LayerSpec& layer : model.parameters->layout().layers) {
    // Rows of further tokens are a part of a field, and stay with it.
    const int64_t fields = layer.reads == model::BatchField::kFurtherTokens ? 1 : 0;
    shared_inputs_.push_back(model::shared_inputs_of(plan.job.model, layer) + fields);
  }
}

void LayerCalls::begin_step(int64_t step, bool evaluates) {
  step_ = step;
  evaluates_ = evaluates;
  loss_sum_ = correct_ = 0;
  further_sums_.assign(static_cast<size_t>(plan_.job.model.num_mtp_layers), 0.0);
  counted_ = 0;
}

std::vector<double> LayerCalls::further_losses() const {
  std::vector<double> losses = further_sums_;
  for (double& loss : losses) loss *= mean_factor();
  return losses;
}

double LayerCalls::mean_factor() const {
  return 1.0 /
         static_cast<double>(microbatch_count_ * plan_.degrees.data() * plan_.degrees.context);
}

int64_t LayerCalls::first_sample_of(const schedule::Action& action) const {
  return (data_rank_ * microbatch_count_ + action.microbatch) * micro_batch_;
}

// The chunk's fields must have been read.
kernels::CallContext LayerCalls::context_of(const schedule::Action& action) {
  kernels::CallContext context{
      .seed = plan_.job.training.seed,
      .step = step_,
      .first_sample = first_sample_of(action),
      .trains = !evaluates_,
      .is_first = !evaluates_ && action.kind == schedule::ActionKind::kForward,
      .loss_gradient = mean_factor() * loss_scale_ / static_cast<double>(call_.tokens())};
  const InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  if (const auto starts = flight.fields.find(model::BatchField::kDocumentStarts);
      starts != flight.fields.end()) {
    context.document_starts = &starts->second;
    context.document_starts_on_host = &flight.document_starts_on_host;
  }
  return context;
}

// Reads the fields of the batch that the chunk needs: whole samples, of which context-parallel
// ranks take their slices, and further tokens what is ahead.
void LayerCalls::read(const parallel::LayerPosition& place, const schedule::Action& action,
                      InFlight& flight) {
  const ledger::CategoryScope category(MemoryCategory::kData);
  SampleBuffers buffers;
  const ModelSpec& model = plan_.job.model;
  std::map<model::BatchField, at::Tensor> read, whole;
  for (const model::BatchField field : place.chunk_reads) {
    at::Tensor& tensor = read[model::source_of(field)];
    if (!tensor.defined()) {  // the tokens may be a field as well
      tensor = ledger::empty_tensor(model::read_field_of(model, field, call_), at::kCPU);
      buffers.at(model::source_of(field)) = tensor.mutable_data_ptr();
    }
    (model::is_taken(model, field, call_) ? whole : flight.fields)[field] = tensor;
  }
  const int64_t first_sample = first_sample_of(action);
  read_(step_, first_sample, micro_batch_, buffers);
  const at::Tensor documents = read[model::BatchField::kDocumentStarts];
  if (whole.contains(model::BatchField::kDocumentStarts)) check_documents(documents);
  for (const auto& [field, samples] : whole) {
    if (!model::looks_ahead(model, field)) {
      flight.fields[field] = taken(samples, model::slices_of(field, call_));
      continue;
    }
    const at::Tensor rows = ledger::empty_tensor(model::field_of(model, field, call_), at::kCPU);
    const int64_t first = field == model::BatchField::kTargets ? 0 : 1;
    for (int64_t row = 0; row < rows.size(0); ++row) {
      take_ahead(samples, documents, first + row, call_.slices(), rows.select(0, row));
    }
    flight.fields[field] = rows;
  }
  whole.clear();
  read.clear();
  for (auto& [field, tensor] : flight.fields) {
    check_integers(field, tensor, first_sample);
    if (field == model::BatchField::kDocumentStarts) flight.document_starts_on_host = tensor;
    tensor = tensor.to(gpu::device_of(model_.gpu.get()));
  }
}

// Checks tokens and labels, which layers use as row indices without a check. Samples that pad an
// evaluation batch have tokens and no targets.
void LayerCalls::check_integers(model::BatchField field, const at::Tensor& tensor,
                                int64_t first_sample) {
  if (tensor.is_floating_point()) return;
  if (field == model::BatchField::kDocumentStarts) {
    if (model::slices_of(field, call_).are_whole()) check_documents(tensor);
    return;
  }
  const auto* values = tensor.const_data_ptr<int64_t>();
  const int64_t vocab_size = plan_.job.model.vocab_size;
  const bool is_further = field == model::BatchField::kFurtherTokens;
  const bool is_target = field != model::BatchField::kTokens && !is_further;
  const bool may_lack = evaluates_ || layout::counts_vary(plan_.job.training);
  // Behind the targets of the next tokens are those of further ones.
  const bool has_rows = model::looks_ahead(plan_.job.model, field);
  const int64_t first_row = has_rows ? tensor[0].numel() : tensor.numel();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const bool is_next = is_target && i < first_row;
    if (values[i] == data::kNoTarget && (is_target || is_further)) {
      if (is_next && !may_lack)
        refuse_missing_target(first_sample + i / (first_row / micro_batch_));
      continue;
    }
    SMP_CHECK(values[i] >= 0 && values[i] < vocab_size);
    if (is_next) ++counted_;
  }
}

// Attention uses the starts as row indices. A token's start is its own position, or the start of
// the token before it.
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
      fmt::format("step {}: sample {} of the global batch has a token without a target, but all "
                  "targets count in the loss of this job: set training.data.loss_mask: true, or "
                  "set training.data.pack to documents or pad",
                  step_ + 1, sample));
}

SavedCall& LayerCalls::call_of(const schedule::Action& action) {
  return microbatches_.at(action.chunk, action.microbatch).calls.at(map_.of(action.layer).in_chunk);
}

std::vector<at::Tensor> LayerCalls::run(const schedule::Action& action,
                                        const std::vector<at::Tensor>& inputs,
                                        layers::Saved* saved) {
  const ledger::CategoryScope category(MemoryCategory::kActivations);
  layers::Layer& layer = *model_.layers[map_.of(action.layer).in_stage];
  return layer.forward(inputs, context_of(action), saved);
}

void LayerCalls::forward(const schedule::Action& action) {
  const parallel::LayerPosition& place = map_.of(action.layer);
  InFlight& flight = microbatches_.admit(action.chunk, action.microbatch);
  if (!place.chunk_reads.empty()) read(place, action, flight);

  std::vector<at::Tensor> inputs = std::exchange(flight.hidden, {});
  SMP_CHECK_EQ(inputs.empty(), place.is_first);
  if (place.reads) inputs.push_back(flight.fields.at(*place.reads));
  SavedCall call;
  const bool keeps_all = !place.is_recomputed && !evaluates_;
  std::vector<at::Tensor> outputs = run(action, inputs, keeps_all ? &call.saved : nullptr);
  if (!evaluates_) {
    SMP_CHECK_EQ(flight.calls.size(), place.in_chunk);
    call.shared.assign(inputs.end() - shared_inputs_.at(place.in_stage), inputs.end());
    if (place.keeps_input) call.inputs = std::move(inputs);
    if (place.drops_recomputable) model_.layers[place.in_stage]->drop_recomputable(call.saved);
    flight.calls.push_back(std::move(call));
  }
  if (check_ != nullptr) check_->forward(action.microbatch, action.layer, outputs);
  if (place.makes_loss) {
    loss_sum_ += outputs.at(0).item<double>();
    for (size_t i = 0; i < further_sums_.size(); ++i) {
      further_sums_[i] += outputs.at(1 + i).item<double>();
    }
    if (outputs.size() > 1 + further_sums_.size()) correct_ += outputs.back().item<double>();
  } else if (place.hands_to >= 0) {
    microbatches_.admit(place.hands_to, action.microbatch).hidden = std::move(outputs);
  } else {
    flight.hidden = std::move(outputs);
  }
  // A chunk whose output is sent ends when the message takes the output (start_send).
  if (evaluates_ && (place.makes_loss || place.hands_to >= 0)) {
    microbatches_.end_if_done(action.chunk, action.microbatch);
  }
}

void LayerCalls::recompute(const schedule::Action& action) {
  const parallel::LayerPosition& place = map_.of(action.layer);
  InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  SavedCall& call = call_of(action);
  if (place.drops_recomputable) {
    const ledger::CategoryScope category(MemoryCategory::kActivations);
    return model_.layers[place.in_stage]->rematerialize(call.saved);
  }
  std::vector<at::Tensor> inputs =
      std::exchange(place.keeps_input ? call.inputs : flight.recomputed, {});
  if (place.reads && !place.keeps_input) inputs.push_back(flight.fields.at(*place.reads));
  std::vector<at::Tensor> outputs = run(action, inputs, &call.saved);
  if (place.feeds_recompute) flight.recomputed = std::move(outputs);
}

// Moves the inputs of a recomputed layer, or the saved tensors of any other. Tensors that other
// layers also use stay where they are.
void LayerCalls::move(SavedCall& call, at::Device to) {
  const ledger::CategoryScope category(MemoryCategory::kActivations);
  for (std::vector<at::Tensor>* tensors : {&call.inputs, &call.saved.tensors}) {
    for (at::Tensor& tensor : *tensors) {
      const bool stays = std::any_of(call.shared.begin(), call.shared.end(),
                                     [&](const auto& shared) { return tensor.is_same(shared); });
      if (!tensor.defined() || stays) continue;
      at::Tensor moved = ledger::empty_tensor(tensor.sizes(), tensor.options().device(to));
      tensor = moved.copy_(tensor);
    }
  }
}

void LayerCalls::offload(const schedule::Action& action) {
  const ledger::LedgerScope host(*model_.host);
  move(call_of(action), at::kCPU);
}

void LayerCalls::fetch(const schedule::Action& action) {
  move(call_of(action), gpu::device_of(model_.gpu.get()));
}

void LayerCalls::backward(const schedule::Action& action) {
  const parallel::LayerPosition& place = map_.of(action.layer);
  InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  SMP_CHECK_EQ(flight.calls.size(), place.in_chunk + 1);
  layers::Saved saved = std::move(flight.calls.back().saved);
  const std::vector<at::Tensor> shared = std::move(flight.calls.back().shared);
  flight.calls.pop_back();

  std::vector<at::Tensor> gradients = std::exchange(flight.gradients, {});
  if (place.makes_loss) {
    const auto options =
        at::TensorOptions().dtype(ledger::scalar_type_of(model_.parameters->gradient_dtype()));
    gradients = {ledger::full_tensor({}, mean_factor() * loss_scale_, options)};
  }
  SMP_CHECK(!gradients.empty());
  layers::DeferredWeightGradients* const deferred =
      map_.defers_weight_gradients() ? &flight.deferred_weight_gradients.emplace_back() : nullptr;
  gradients = model_.layers[place.in_stage]->backward(std::move(saved), std::move(gradients),
                                                      context_of(action), deferred);
  if (check_ != nullptr) check_->backward(action.microbatch, action.layer, gradients);
  if (place.reads) gradients.pop_back();
  if (place.takes_from >= 0) {
    microbatches_.at(place.takes_from, action.microbatch).gradients = std::move(gradients);
  } else if (!place.is_first) {
    flight.gradients = std::move(gradients);
  }
  if (place.opens_chunk) microbatches_.end_if_done(action.chunk, action.microbatch);
}

// The schedule runs deferred weight gradients in the order of the backwards.
void LayerCalls::weight(const schedule::Action& action) {
  InFlight& flight = microbatches_.at(action.chunk, action.microbatch);
  flight.deferred_weight_gradients.front().run();
  flight.deferred_weight_gradients.pop_front();
  microbatches_.end_if_done(action.chunk, action.microbatch);
}

}  // namespace smp::engine
