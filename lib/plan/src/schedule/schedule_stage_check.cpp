#include "schedule/schedule_stage_check.h"

#include <algorithm>

#include "smp/plan/base/check.h"

namespace smp::schedule {
namespace {

std::string number(int64_t value) { return std::to_string(value); }

std::string only_from_0_to(const char* what, int64_t count) {
  return "there are " + std::string(what) + " 0 to " + number(count - 1) + " only";
}

}  // namespace

StageCheck::StageCheck(const ScheduleParameters& parameters, int64_t stage, int64_t live_bound)
    : parameters_(parameters),
      shape_(parameters.shape),
      chunks_(parameters.layers[static_cast<size_t>(stage)]),
      stage_(stage),
      last_stage_(shape_.stages - 1),
      live_bound_(live_bound),
      splits_(defers_weight_gradients(shape_.kind)),
      buckets_(parameters, stage) {
  for (const std::vector<int64_t>& layers : chunks_) {
    layers_.insert(layers_.end(), layers.begin(), layers.end());
  }
  const ChunkPlace end = place_of_chunk(shape_, shape_.stages * shape_.chunks() - 1);
  head_ = parameters.layers[static_cast<size_t>(end.stage)][static_cast<size_t>(end.chunk)].back();
  if (!parameters.bucket_first_layers.empty()) {
    bucket_first_layers_ = parameters.bucket_first_layers[static_cast<size_t>(stage)];
    bucket_last_layers_ = parameters.bucket_last_layers[static_cast<size_t>(stage)];
  }
  const auto units = static_cast<size_t>(shape_.chunks() * shape_.microbatches);
  forwards_.assign(units, 0);
  backwards_.assign(units, 0);
  if (splits_) weights_.assign(units, 0);
  gradients_.assign(layers_.size(), 0);
  messages_.assign(4 * units + 4, Progress::kNone);
  if (!parameters.checkpoints.empty()) {
    recomputed_.assign(layers_.size() * static_cast<size_t>(shape_.microbatches), false);
  }
  if (!parameters.offloaded.empty()) {
    offloaded_.assign(layers_.size() * static_cast<size_t>(shape_.microbatches), Progress::kNone);
  }
  reduced_.assign(bucket_first_layers_.size(), Progress::kNone);
  gathered_ = replicas_ = reduced_;
  has_norm_.assign(reduced_.size(), false);
  updated_.assign(std::max<size_t>(1, bucket_first_layers_.size()), false);
  if (parameters.sharded) {
    for (size_t b = 0; b < gathered_.size(); ++b) {
      gathered_[b] = shape_.forward_only ? Progress::kEnded : gathered_at_begin(b);
      is_updated_.push_back(gathered_[b] == Progress::kNone);
      gathers_ += gathered_[b] == Progress::kStarted ? 1 : 0;
    }
  }
  const auto index = static_cast<size_t>(stage);
  if (!parameters.gradient_buffers.empty()) gradient_buffers_ = parameters.gradient_buffers[index];
  if (!parameters.weight_buffers.empty()) weight_buffers_ = parameters.weight_buffers[index];
  reductions_.assign(gradient_buffers_.size(), 0);
}

std::optional<std::string> StageCheck::apply(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward: return forward(action);
    case ActionKind::kBackward: return backward(action);
    case ActionKind::kWeight: return weight(action);
    case ActionKind::kRecompute: return recompute(action);
    case ActionKind::kOffload: return offload(action);
    case ActionKind::kFetch: return fetch(action);
    case ActionKind::kReceive:
    case ActionKind::kSend: return start_message(action);
    case ActionKind::kReceiveWait:
    case ActionKind::kSendWait: return end_message(action);
    case ActionKind::kRouterLoads: return router_loads();
    case ActionKind::kReduceKv: return reduce_kv(action);
    case ActionKind::kReduce: return shards_gradients() ? reduce_shards(action) : reduce(action);
    case ActionKind::kReduceWait: return end_reduction(action);
    case ActionKind::kReduceReplicas: return reduce_replicas(action);
    case ActionKind::kReduceReplicasWait: return end_replicas(action);
    case ActionKind::kGradientNorm: return gradient_norm(action);
    case ActionKind::kStep: return step();
    case ActionKind::kUpdate: return update(action);
    case ActionKind::kGather: return shards_weights() ? gather_shards(action) : gather(action);
    case ActionKind::kGatherWait: return end_gather(action);
    case ActionKind::kFree: return free_weights(action);
  }
  check_failed(__FILE__, __LINE__, "unknown action");
}

int64_t StageCheck::place(int64_t layer) const {
  return std::find(layers_.begin(), layers_.end(), layer) - layers_.begin();
}

size_t StageCheck::unit(int64_t chunk, int64_t microbatch) const {
  return static_cast<size_t>(chunk * shape_.microbatches + microbatch);
}

const std::vector<int64_t>& StageCheck::chunk_layers(const Action& action) const {
  return chunks_[static_cast<size_t>(action.chunk)];
}

StageCheck::Problem StageCheck::unit_of(const Action& action) const {
  if (action.microbatch < 0 || action.microbatch >= shape_.microbatches) {
    return only_from_0_to("microbatches", shape_.microbatches);
  }
  if (action.chunk < 0 || action.chunk >= shape_.chunks()) {
    return only_from_0_to("chunks", shape_.chunks());
  }
  return std::nullopt;
}

StageCheck::Problem StageCheck::place_of(const Action& action) const {
  if (Problem problem = unit_of(action)) return problem;
  const std::vector<int64_t>& layers = chunk_layers(action);
  if (std::find(layers.begin(), layers.end(), action.layer) == layers.end()) {
    return shape_.chunks() == 1 ? "the layer is not of this stage"
                                : "the layer is not of this chunk";
  }
  if (stepped_) return "the action comes after the step";
  if (Problem problem = not_updated(action)) return problem;
  return shards_ready(action);
}

StageCheck::Problem StageCheck::forward(const Action& action) {
  if (Problem problem = place_of(action)) return problem;
  const std::vector<int64_t>& layers = chunk_layers(action);
  int32_t& passed = forwards_[unit(action)];
  if (static_cast<size_t>(passed) == layers.size()) {
    return "the microbatch has already passed all layers of this stage";
  }
  const int64_t next = layers[static_cast<size_t>(passed)];
  if (next != action.layer) {
    return "forward of layer " + number(next) + " comes next for this microbatch";
  }
  if (passed == 0) {
    if (Problem problem = input_missing(action, Payload::kActivation)) return problem;
    if (++live_ > live_bound_) {
      return number(live_) + (shape_.chunks() == 1 ? " microbatches" : " microbatches in a chunk") +
             " are live, the bound is " + number(live_bound_);
    }
  }
  ++passed;
  if (shape_.forward_only && static_cast<size_t>(passed) == layers.size()) --live_;
  return std::nullopt;
}

StageCheck::Problem StageCheck::router_loads() {
  if (!parameters_.sums_router_loads) return "no router asks for the loads of the step";
  if (std::exchange(has_loads_, true)) return "the loads of the routers were already summed";
  for (int64_t chunk = 0; chunk < shape_.chunks(); ++chunk) {
    for (int64_t microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
      const auto passed = static_cast<size_t>(forwards_[unit(chunk, microbatch)]);
      if (passed == chunks_[static_cast<size_t>(chunk)].size()) continue;
      return "forward of microbatch " + std::to_string(microbatch) + " has not ended";
    }
  }
  return std::nullopt;
}

StageCheck::Problem StageCheck::backward(const Action& action) {
  if (Problem problem = place_of(action)) return problem;
  if (shape_.forward_only) return "this schedule evaluates";
  const std::vector<int64_t>& layers = chunk_layers(action);
  if (static_cast<size_t>(forwards_[unit(action)]) < layers.size()) {
    return "forward of this microbatch has not ended on this stage";
  }
  if (parameters_.sums_router_loads && !has_loads_) {
    return "the loads of the routers are not summed yet";
  }
  int32_t& passed = backwards_[unit(action)];
  if (static_cast<size_t>(passed) == layers.size()) {
    return "backward of this microbatch has already ended";
  }
  const int64_t next = layers[layers.size() - 1 - static_cast<size_t>(passed)];
  if (next != action.layer) {
    return "backward of layer " + number(next) + " comes next for this microbatch";
  }
  if (passed == 0) {
    if (Problem problem = input_missing(action, Payload::kGradient)) return problem;
  }
  if (Problem problem = kept_missing(action)) return problem;
  ++passed;
  if (splits_) return std::nullopt;
  gradient_done(action);
  if (static_cast<size_t>(passed) == layers.size()) --live_;
  return std::nullopt;
}

StageCheck::Problem StageCheck::weight(const Action& action) {
  if (!splits_) return "this schedule computes weight gradients in its backward";
  if (Problem problem = place_of(action)) return problem;
  const std::vector<int64_t>& layers = chunk_layers(action);
  int32_t& passed = weights_[unit(action)];
  if (static_cast<size_t>(passed) == layers.size()) {
    return "weight gradients of this microbatch have already ended";
  }
  const int64_t next = layers[layers.size() - 1 - static_cast<size_t>(passed)];
  if (next != action.layer) {
    return "the weight gradient of layer " + number(next) + " comes next for this microbatch";
  }
  if (backwards_[unit(action)] <= passed) {
    return "backward of this microbatch has not passed the layer";
  }
  ++passed;
  gradient_done(action);
  if (static_cast<size_t>(passed) == layers.size()) --live_;
  return std::nullopt;
}

void StageCheck::gradient_done(const Action& action) {
  ++gradients_[static_cast<size_t>(place(action.layer))];
}

bool StageCheck::gradient_complete(size_t place) const {
  return gradients_[place] == shape_.microbatches;
}

// The first missing gradient of layers_[first] to layers_[last - 1].
StageCheck::Problem StageCheck::gradients_of(int64_t first, int64_t last) const {
  for (int64_t i = first; i < last; ++i) {
    const int64_t layer = layers_[static_cast<size_t>(i)];
    if (gradient_complete(static_cast<size_t>(i))) continue;
    return splits_ ? "a microbatch's weight gradient of layer " + number(layer) + " is missing"
                   : "a microbatch has not passed layer " + number(layer) + " backward";
  }
  return std::nullopt;
}

std::optional<std::string> StageCheck::missing_at_end() const {
  if (!stepped_ && !shape_.forward_only) return "the step is missing";
  for (size_t i = 0; shape_.forward_only && i < forwards_.size(); ++i) {
    const size_t chunk = i / static_cast<size_t>(shape_.microbatches);
    if (static_cast<size_t>(forwards_[i]) < chunks_[chunk].size()) {
      return "a microbatch has not passed all layers";
    }
  }
  const auto unfinished = [&](Payload payload, int64_t chunk, int64_t microbatch) {
    Problem problem;
    for (const bool sent : {false, true}) {
      const size_t index = microbatch < 0 ? 0 : unit(chunk, microbatch);
      if (problem || messages_[message_slot(payload, index, sent)] != Progress::kStarted) continue;
      const Action start{.kind = sent ? ActionKind::kSend : ActionKind::kReceive,
                         .payload = payload,
                         .chunk = static_cast<int16_t>(chunk),
                         .microbatch = static_cast<int32_t>(microbatch)};
      problem = "no action waits for '" + to_string(start) + "'";
    }
    return problem;
  };
  for (const Payload payload : {Payload::kActivation, Payload::kGradient}) {
    for (int64_t chunk = 0; chunk < shape_.chunks(); ++chunk) {
      for (int64_t microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
        if (Problem problem = unfinished(payload, chunk, microbatch)) return problem;
      }
    }
  }
  for (const Payload payload : {Payload::kTiedGradient, Payload::kTiedWeight}) {
    if (Problem problem = unfinished(payload, 0, -1)) return problem;
  }
  if (shape_.forward_only) return weights_freed();
  if (parameters_.tied_across_stages && stage_ == last_stage_ &&
      !arrived(Payload::kTiedWeight, 0)) {
    return "the tied weight does not arrive";
  }
  for (size_t b = 0; b < updated_.size(); ++b) {
    if (updated_[b]) continue;
    if (bucket_first_layers_.empty()) return "the weights are not updated";
    return "the weights of bucket " + number(static_cast<int64_t>(b)) + " are not updated";
  }
  for (size_t b = 0; parameters_.sharded && b < gathered_.size(); ++b) {
    const Progress due = gathered_at_begin(b);
    if (gathered_[b] == due) continue;
    return "the weights of bucket " + number(static_cast<int64_t>(b)) +
           (gathered_[b] == Progress::kNone ? " are not gathered"
            : due == Progress::kEnded       ? " are still being gathered"
            : due == Progress::kNone        ? " are gathered here, not where the next step does it"
                                     : " were awaited here, not where the next step uses them");
  }
  return weights_freed();
}

}  // namespace smp::schedule
