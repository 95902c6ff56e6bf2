#include "activation_walk.h"

#include <map>

#include "smp/plan/check.h"

namespace smp {
namespace {

bool fuller(const ActivationBytes& a, const ActivationBytes& b) { return a.total() > b.total(); }

class Walk {
 public:
  explicit Walk(const WalkedStage& stage) : stage_(stage) {}

  void take(const Action& action) {
    switch (action.kind) {
      // An activation lives until the backward of its chunk's first layer, a gradient until that of
      // the last one has used it, a tied gradient until it has been added.
      case ActionKind::kReceive: now_.messages += received_bytes(action.payload); break;
      case ActionKind::kReceiveWait:
        if (action.payload == Payload::kTiedGradient) now_.messages -= stage_.tied_bytes;
        break;
      case ActionKind::kForward:
        forward(layer(action.layer));
        if (layer(action.layer).closes_chunk) closing_[action.chunk] = &layer(action.layer);
        break;
      case ActionKind::kBackward: backward(layer(action.layer)); break;
      case ActionKind::kWeight: weight(layer(action.layer)); break;
      case ActionKind::kSendWait:
        if (action.payload == Payload::kGradient) now_.gradients -= stage_.boundary_bytes;
        // Where it is kept, what was sent forward is the last layer's output.
        if (action.payload == Payload::kActivation && stage_.frees_sent_outputs) {
          kept_by(*closing_.at(action.chunk)).bytes -= stage_.boundary_bytes;
        }
        break;
      case ActionKind::kStep: peaks_.step = now_; break;
      default: break;
    }
  }

  const ActivationPeaks& peaks() const { return peaks_; }

 private:
  const WalkedLayer& layer(int64_t index) const {
    return stage_.layers.at(static_cast<size_t>(index));
  }

  int64_t received_bytes(Payload payload) const {
    switch (payload) {
      case Payload::kActivation:
      case Payload::kGradient: return stage_.boundary_bytes;
      case Payload::kTiedGradient: return stage_.tied_bytes;
      case Payload::kTiedWeight:  // lands in its place
      case Payload::kNone: return 0;
    }
    check_failed(__FILE__, __LINE__, "unknown payload");
  }

  void forward(const WalkedLayer& layer) {
    if (layer.opens_chunk) {
      ++now_.live;
      now_.data += layer.data_bytes;
    }
    ActivationBytes instant = now_;
    instant.transient = layer.memory.forward_peak_bytes;
    instant.running = layer.kind;
    if (fuller(instant, peaks_.forward)) peaks_.forward = instant;
    Kept& kept = kept_by(layer);
    kept.bytes += layer.memory.saved_bytes;
    ++kept.calls;
  }

  void backward(const WalkedLayer& layer) {
    const bool loss = layer.kind == RunningLayer::kHead;
    ActivationBytes instant = now_;
    instant.transient = layer.memory.backward_peak_bytes;
    instant.again = layer.again_bytes;
    instant.running = layer.kind;
    if (loss) instant.gradients += layer.memory.output_bytes;
    if (fuller(instant, peaks_.backward)) peaks_.backward = instant;
    if (loss || !stage_.weights_put_off) release(layer);
    // The gradient of the output is used up. It came from the next layer or the next stage; the
    // head, whose output is the loss, has none.
    if (!layer.closes_chunk || layer.hands_over) {
      now_.gradients -= layer.memory.output_bytes;
    } else if (!loss) {
      now_.messages -= stage_.boundary_bytes;
    }
    now_.gradients += layer.memory.input_gradient_bytes;
    if (!stage_.weights_put_off) end_unit(layer);
  }

  void weight(const WalkedLayer& layer) {
    // The loss is released by its backward already.
    if (layer.kind != RunningLayer::kHead) release(layer);
    end_unit(layer);
  }

  // A microbatch has left a chunk with its last gradient.
  void end_unit(const WalkedLayer& layer) {
    if (!layer.opens_chunk) return;
    --now_.live;
    now_.data -= layer.data_bytes;
    // The input that was received.
    if (layer.kind != RunningLayer::kEmbedding && !layer.takes_over) {
      now_.messages -= stage_.boundary_bytes;
    }
  }

  void release(const WalkedLayer& layer) {
    Kept& kept = kept_by(layer);
    kept.bytes -= layer.memory.saved_bytes;
    --kept.calls;
    const bool sent = layer.closes_chunk && !layer.hands_over && layer.kind != RunningLayer::kHead;
    if (sent && stage_.frees_sent_outputs) {
      kept.bytes += stage_.boundary_bytes;  // gone already
    }
  }

  Kept& kept_by(const WalkedLayer& layer) {
    switch (layer.kind) {
      case RunningLayer::kEmbedding: return now_.embedding;
      case RunningLayer::kHead: return now_.head;
      case RunningLayer::kBlock:
      case RunningLayer::kNone: return layer.recomputed ? now_.checkpoints : now_.blocks;
    }
    check_failed(__FILE__, __LINE__, "unknown layer");
  }

  const WalkedStage& stage_;
  std::map<int64_t, const WalkedLayer*> closing_;  // by chunk
  ActivationBytes now_;
  ActivationPeaks peaks_;
};

}  // namespace

ActivationPeaks walk_activations(const std::vector<Action>& actions, const WalkedStage& stage) {
  SMP_CHECK(!stage.layers.empty());
  Walk walk(stage);
  for (const Action& action : actions) walk.take(action);
  return walk.peaks();
}

}  // namespace smp
