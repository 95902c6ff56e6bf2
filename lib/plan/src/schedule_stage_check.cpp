#include "schedule_stage_check.h"

#include <algorithm>

#include "smp/plan/check.h"

namespace smp {
namespace {

std::string number(int64_t value) { return std::to_string(value); }

bool is_send(const Action& action) {
  return action.kind == ActionKind::kSend || action.kind == ActionKind::kSendWait;
}

bool is_per_microbatch(Payload payload) {
  return payload == Payload::kActivation || payload == Payload::kGradient;
}

}  // namespace

StageCheck::StageCheck(const ScheduleParameters& parameters, int64_t stage, int64_t live_bound)
    : parameters_(parameters),
      layers_(parameters.layers[static_cast<size_t>(stage)]),
      stage_(stage),
      last_stage_(static_cast<int64_t>(parameters.layers.size()) - 1),
      live_bound_(live_bound),
      forwards_(static_cast<size_t>(parameters.microbatches), 0),
      backwards_(static_cast<size_t>(parameters.microbatches), 0) {
  if (!parameters.bucket_first_layers.empty()) {
    bucket_first_layers_ = parameters.bucket_first_layers[static_cast<size_t>(stage)];
  }
}

std::optional<std::string> StageCheck::apply(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward: return forward(action);
    case ActionKind::kBackward: return backward(action);
    case ActionKind::kReceive:
    case ActionKind::kSend: return start_message(action);
    case ActionKind::kReceiveWait:
    case ActionKind::kSendWait: return end_message(action);
    case ActionKind::kReduceKv: return reduce_kv(action);
    case ActionKind::kReduce: return reduce(action);
    case ActionKind::kReduceWait: return end_bucket(action, reduced_);
    case ActionKind::kStep: return step();
    case ActionKind::kGather: return gather(action);
    case ActionKind::kGatherWait: return end_bucket(action, gathered_);
  }
  check_failed(__FILE__, __LINE__, "unknown action");
}

StageCheck::Problem StageCheck::place_of(const Action& action) const {
  if (action.microbatch < 0 || action.microbatch >= parameters_.microbatches) {
    return "there are microbatches 0 to " + number(parameters_.microbatches - 1) + " only";
  }
  if (std::find(layers_.begin(), layers_.end(), action.layer) == layers_.end()) {
    return "the layer is not of this stage";
  }
  if (stepped_) return "it comes after the step";
  return std::nullopt;
}

StageCheck::Problem StageCheck::forward(const Action& action) {
  if (Problem problem = place_of(action)) return problem;
  size_t& passed = forwards_[static_cast<size_t>(action.microbatch)];
  if (passed == layers_.size()) return "the microbatch has passed all layers of this stage before";
  if (layers_[passed] != action.layer) {
    return "forward of layer " + number(layers_[passed]) + " comes next for this microbatch";
  }
  if (passed == 0) {
    if (stage_ > 0 && !arrived(Payload::kActivation, action.microbatch)) {
      return "its input has not arrived";
    }
    if (++live_ > live_bound_) {
      return number(live_) + " microbatches are live, the bound is " + number(live_bound_);
    }
  }
  ++passed;
  return std::nullopt;
}

StageCheck::Problem StageCheck::backward(const Action& action) {
  if (Problem problem = place_of(action)) return problem;
  const auto microbatch = static_cast<size_t>(action.microbatch);
  if (forwards_[microbatch] < layers_.size()) {
    return "forward of this microbatch has not ended on this stage";
  }
  size_t& passed = backwards_[microbatch];
  if (passed == layers_.size()) return "backward of this microbatch has ended before";
  const int64_t next = layers_[layers_.size() - 1 - passed];
  if (next != action.layer) {
    return "backward of layer " + number(next) + " comes next for this microbatch";
  }
  if (passed == 0 && stage_ < last_stage_ && !arrived(Payload::kGradient, action.microbatch)) {
    return "the gradient of its output has not arrived";
  }
  if (++passed == layers_.size()) --live_;
  return std::nullopt;
}

StageCheck::Problem StageCheck::peer_of(const Action& action) const {
  int64_t from = 0, to = 0;
  switch (action.payload) {
    case Payload::kNone: return "it has no payload";
    case Payload::kActivation:
      from = is_send(action) ? stage_ : stage_ - 1;
      to = from + 1;
      break;
    case Payload::kGradient:
      from = is_send(action) ? stage_ : stage_ + 1;
      to = from - 1;
      break;
    case Payload::kTiedGradient: from = last_stage_; break;
    case Payload::kTiedWeight: to = last_stage_; break;
  }
  const bool tied = !is_per_microbatch(action.payload);
  if (tied && !parameters_.tied_across_stages) return "the stages share no embedding";
  if (from < 0 || from > last_stage_ || to < 0 || to > last_stage_) {
    return "there is no such neighbour";
  }
  if (stage_ != (is_send(action) ? from : to)) return "another stage does this";
  const int64_t peer = is_send(action) ? to : from;
  if (action.peer != peer) return "the peer must be stage " + number(peer);
  return std::nullopt;
}

// Whether what a send sends exists.
StageCheck::Problem StageCheck::data_for(const Action& action) const {
  const auto microbatch = static_cast<size_t>(action.microbatch);
  switch (action.payload) {
    case Payload::kNone: break;
    case Payload::kActivation:
      if (forwards_[microbatch] < layers_.size()) return "the output does not exist yet";
      break;
    case Payload::kGradient:
      if (backwards_[microbatch] < layers_.size()) return "the gradient does not exist yet";
      break;
    case Payload::kTiedGradient:
      if (!backward_complete(layers_.back())) return "the gradient is not complete yet";
      break;
    case Payload::kTiedWeight: {
      if (!stepped_) return "the weight is not updated yet";
      const auto bucket = static_cast<int64_t>(bucket_first_layers_.size()) - 1;
      const auto gathered = gathered_.find(bucket);
      if (parameters_.sharded &&
          (gathered == gathered_.end() || gathered->second != Progress::kEnded)) {
        return "the weight is not gathered yet";
      }
      break;
    }
  }
  return std::nullopt;
}

StageCheck::Problem StageCheck::start_message(const Action& action) {
  if (Problem problem = peer_of(action)) return problem;
  if (is_per_microbatch(action.payload) &&
      (action.microbatch < 0 || action.microbatch >= parameters_.microbatches)) {
    return "there are microbatches 0 to " + number(parameters_.microbatches - 1) + " only";
  }
  if (action.kind == ActionKind::kSend) {
    if (Problem problem = data_for(action)) return problem;
  }
  const Message message{action.payload, action.microbatch, is_send(action)};
  if (!messages_.emplace(message, Progress::kStarted).second) return "it was started before";
  return std::nullopt;
}

StageCheck::Problem StageCheck::end_message(const Action& action) {
  if (Problem problem = peer_of(action)) return problem;
  const auto message = messages_.find({action.payload, action.microbatch, is_send(action)});
  if (message == messages_.end()) return "it was never started";
  if (message->second == Progress::kEnded) return "it was waited for before";
  message->second = Progress::kEnded;
  return std::nullopt;
}

StageCheck::Problem StageCheck::reduce_kv(const Action& action) {
  if (!parameters_.kv_replicated) return "no KV head is replicated";
  const int64_t head = parameters_.layers.back().back();
  const bool is_block = action.layer > 0 && action.layer < head &&
                        std::find(layers_.begin(), layers_.end(), action.layer) != layers_.end();
  if (!is_block) return "the layer is no block of this stage";
  if (!backward_complete(action.layer)) return "a microbatch has not passed the layer backward";
  if (!reduced_kv_.insert(action.layer).second) return "it was done before";
  return std::nullopt;
}

int64_t StageCheck::last_layer_of_bucket(int64_t bucket) const {
  return bucket == 0 ? layers_.back() : bucket_first_layers_[static_cast<size_t>(bucket) - 1] - 1;
}

bool StageCheck::has_bucket(int64_t bucket) const {
  return bucket >= 0 && bucket < static_cast<int64_t>(bucket_first_layers_.size());
}

StageCheck::Problem StageCheck::reduce(const Action& action) {
  if (!has_bucket(action.bucket)) return "this stage has no such bucket";
  const int64_t head = parameters_.layers.back().back();
  const int64_t last = last_layer_of_bucket(action.bucket);
  for (int64_t layer = bucket_first_layers_[static_cast<size_t>(action.bucket)]; layer <= last;
       ++layer) {
    if (!backward_complete(layer)) {
      return "a microbatch has not passed layer " + number(layer) + " backward";
    }
    const bool is_block = layer > 0 && layer < head;
    if (parameters_.kv_replicated && is_block && reduced_kv_.count(layer) == 0) {
      return "the KV gradients of layer " + number(layer) + " are not summed yet";
    }
    if (layer == 0 && parameters_.tied_across_stages && !arrived(Payload::kTiedGradient, -1)) {
      return "the tied gradient has not arrived";
    }
  }
  if (!reduced_.emplace(action.bucket, Progress::kStarted).second) return "it was started before";
  return std::nullopt;
}

StageCheck::Problem StageCheck::end_bucket(const Action& action,
                                           std::map<int64_t, Progress>& buckets) {
  const auto bucket = buckets.find(action.bucket);
  if (bucket == buckets.end()) return "it was never started";
  if (bucket->second == Progress::kEnded) return "it was waited for before";
  bucket->second = Progress::kEnded;
  return std::nullopt;
}

StageCheck::Problem StageCheck::everything_reduced() const {
  for (int64_t b = 0; has_bucket(b); ++b) {
    const auto bucket = reduced_.find(b);
    if (bucket == reduced_.end() || bucket->second != Progress::kEnded) {
      return "bucket " + number(b) + " is not reduced yet";
    }
  }
  const int64_t head = parameters_.layers.back().back();
  for (const int64_t layer : layers_) {
    const bool is_block = layer > 0 && layer < head;
    if (parameters_.kv_replicated && is_block && reduced_kv_.count(layer) == 0) {
      return "the KV gradients of layer " + number(layer) + " are not summed yet";
    }
  }
  if (parameters_.tied_across_stages && stage_ == 0 && !arrived(Payload::kTiedGradient, -1)) {
    return "the tied gradient has not arrived";
  }
  return std::nullopt;
}

StageCheck::Problem StageCheck::step() {
  if (stepped_) return "the step was done before";
  for (const int64_t layer : layers_) {
    if (!backward_complete(layer)) {
      return "a microbatch has not passed layer " + number(layer) + " backward";
    }
  }
  if (Problem problem = everything_reduced()) return problem;
  stepped_ = true;
  return std::nullopt;
}

StageCheck::Problem StageCheck::gather(const Action& action) {
  if (!parameters_.sharded) return "the weights are not sharded";
  if (!has_bucket(action.bucket)) return "this stage has no such bucket";
  if (!stepped_) return "the weights are not updated yet";
  if (!gathered_.emplace(action.bucket, Progress::kStarted).second) return "it was started before";
  return std::nullopt;
}

bool StageCheck::arrived(Payload payload, int64_t microbatch) const {
  const auto message = messages_.find({payload, microbatch, false});
  return message != messages_.end() && message->second == Progress::kEnded;
}

bool StageCheck::backward_complete(int64_t layer) const {
  const auto place = std::find(layers_.begin(), layers_.end(), layer);
  const auto needed = static_cast<size_t>(layers_.end() - place);
  return std::all_of(backwards_.begin(), backwards_.end(),
                     [&](size_t passed) { return passed >= needed; });
}

std::optional<std::string> StageCheck::missing_at_end() const {
  if (!stepped_) return "there is no step";
  for (const auto& [message, progress] : messages_) {
    if (progress == Progress::kEnded) continue;
    const auto& [payload, microbatch, sent] = message;
    const Action start{.kind = sent ? ActionKind::kSend : ActionKind::kReceive,
                       .payload = payload,
                       .microbatch = microbatch};
    return "nothing waits for '" + to_string(start) + "'";
  }
  if (parameters_.tied_across_stages && stage_ == last_stage_ &&
      !arrived(Payload::kTiedWeight, -1)) {
    return "the tied weight does not arrive";
  }
  if (parameters_.sharded) {
    for (int64_t b = 0; has_bucket(b); ++b) {
      const auto bucket = gathered_.find(b);
      if (bucket == gathered_.end() || bucket->second != Progress::kEnded) {
        return "the weights of bucket " + number(b) + " are not gathered";
      }
    }
  }
  return std::nullopt;
}

}  // namespace smp
