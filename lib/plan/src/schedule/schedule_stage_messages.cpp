#include <string>

#include "schedule/schedule_stage_check.h"

// The rules for messages of a stage: each has the right peer, its data exist when it is sent, and
// it is started and waited for once.
namespace smp::schedule {
namespace {

bool is_send(const Action& action) {
  return action.kind == ActionKind::kSend || action.kind == ActionKind::kSendWait;
}

bool is_per_microbatch(Payload payload) {
  return payload == Payload::kActivation || payload == Payload::kGradient;
}

}  // namespace

// Whether the neighbouring chunk's tensor is there: as a message, or computed by this stage.
StageCheck::Problem StageCheck::input_missing(const Action& action, Payload payload) const {
  const int64_t step = payload == Payload::kActivation ? -1 : 1;
  const int64_t position = position_of_chunk(shape_, {stage_, int64_t{action.chunk}}) + step;
  if (position < 0 || position >= shape_.stages * shape_.chunks()) return std::nullopt;
  const ChunkPlace beside = place_of_chunk(shape_, position);
  bool is_there = arrived(payload, unit(action));
  if (beside.stage == stage_) {
    const auto& passed = payload == Payload::kActivation ? forwards_ : backwards_;
    is_there = static_cast<size_t>(passed[unit(beside.chunk, action.microbatch)]) ==
               chunks_[static_cast<size_t>(beside.chunk)].size();
  }
  if (is_there) return std::nullopt;
  return payload == Payload::kActivation ? "the input of the layer has not arrived"
                                         : "the gradient of the layer's output has not arrived";
}

StageCheck::Problem StageCheck::peer_of_tied(const Action& action) const {
  if (!parameters_.tied_across_stages) return "the stages share no embedding";
  const bool gradient = action.payload == Payload::kTiedGradient;
  const int64_t from = gradient ? last_stage_ : 0;
  const int64_t to = gradient ? 0 : last_stage_;
  if (stage_ != (is_send(action) ? from : to)) return "the action belongs to another stage";
  const int64_t peer = is_send(action) ? to : from;
  if (action.peer != peer) return "the peer must be stage " + std::to_string(peer);
  return std::nullopt;
}

StageCheck::Problem StageCheck::peer_of(const Action& action) const {
  if (action.payload == Payload::kNone) return "the message has no payload";
  if (!is_per_microbatch(action.payload)) return peer_of_tied(action);
  if (Problem problem = unit_of(action)) return problem;
  const bool onwards = (action.payload == Payload::kActivation) == is_send(action);
  const int64_t position =
      position_of_chunk(shape_, {stage_, int64_t{action.chunk}}) + (onwards ? 1 : -1);
  if (position < 0 || position >= shape_.stages * shape_.chunks()) {
    return "the stage has no neighbour in this direction";
  }
  const int64_t peer = place_of_chunk(shape_, position).stage;
  if (peer == stage_) return "the neighbouring chunk is on the same stage";
  if (action.peer != peer) return "the peer must be stage " + std::to_string(peer);
  return std::nullopt;
}

// Whether the data of a send exist.
StageCheck::Problem StageCheck::data_for(const Action& action) const {
  switch (action.payload) {
    case Payload::kNone: break;
    case Payload::kActivation:
      if (static_cast<size_t>(forwards_[unit(action)]) < chunk_layers(action).size()) {
        return "the output does not exist yet";
      }
      break;
    case Payload::kGradient:
      if (static_cast<size_t>(backwards_[unit(action)]) < chunk_layers(action).size()) {
        return "the gradient does not exist yet";
      }
      break;
    case Payload::kTiedGradient:
      if (!gradient_complete(layers_.size() - 1)) return "the gradient is not complete yet";
      break;
    case Payload::kTiedWeight: {
      if (!stepped_) return "the weight is not updated yet";
      const int32_t table = buckets_.table();
      if ((parameters_.sharded || shards_weights()) &&
          (table < 0 || gathered_[static_cast<size_t>(table)] != Progress::kEnded)) {
        return "the weight is not gathered yet";
      }
      break;
    }
  }
  return std::nullopt;
}

size_t StageCheck::message_slot(Payload payload, size_t unit, bool sent) const {
  const size_t units = forwards_.size();
  const size_t direction = sent ? 1 : 0;
  if (is_per_microbatch(payload)) {
    const size_t kind = payload == Payload::kGradient ? 2 : 0;
    return (kind + direction) * units + unit;
  }
  const size_t kind = payload == Payload::kTiedWeight ? 2 : 0;
  return 4 * units + kind + direction;
}

size_t StageCheck::message_slot(const Action& action) const {
  const size_t index = is_per_microbatch(action.payload) ? unit(action) : 0;
  return message_slot(action.payload, index, is_send(action));
}

bool StageCheck::arrived(Payload payload, size_t unit) const {
  return messages_[message_slot(payload, unit, false)] == Progress::kEnded;
}

bool StageCheck::waits_for_started(const Action& action) const {
  return (action.kind == ActionKind::kReceiveWait || action.kind == ActionKind::kSendWait) &&
         !peer_of(action) && messages_[message_slot(action)] == Progress::kStarted;
}

StageCheck::Problem StageCheck::start_message(const Action& action) {
  if (Problem problem = peer_of(action)) return problem;
  if (action.kind == ActionKind::kSend) {
    if (Problem problem = data_for(action)) return problem;
  }
  Progress& progress = messages_[message_slot(action)];
  if (progress != Progress::kNone) return "the action was already started";
  progress = Progress::kStarted;
  return std::nullopt;
}

StageCheck::Problem StageCheck::end_message(const Action& action) {
  if (Problem problem = peer_of(action)) return problem;
  Progress& progress = messages_[message_slot(action)];
  if (progress == Progress::kNone) return "the awaited action was never started";
  if (progress == Progress::kEnded) return "the action was already awaited";
  progress = Progress::kEnded;
  return std::nullopt;
}

}  // namespace smp::schedule
