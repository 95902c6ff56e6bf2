#include "activation_walk.h"

#include "smp/plan/check.h"

namespace smp {
namespace {

bool fuller(const ActivationBytes& a, const ActivationBytes& b) { return a.total() > b.total(); }

class Walk {
 public:
  explicit Walk(const WalkedStage& stage)
      : stage_(stage), first_(stage.layers.front()), last_(stage.layers.back()) {}

  void take(const Action& action) {
    switch (action.kind) {
      // An activation lives until the backward of the first layer, a gradient until that of the
      // last one has used it, a tied gradient until it has been added.
      case ActionKind::kReceive: now_.messages += received_bytes(action.payload); break;
      case ActionKind::kReceiveWait:
        if (action.payload == Payload::kTiedGradient) now_.messages -= stage_.tied_bytes;
        break;
      case ActionKind::kForward: forward(action.layer); break;
      case ActionKind::kBackward: backward(action.layer); break;
      case ActionKind::kSendWait:
        // What is sent forward is the last layer's output, which its backward needs anyway.
        if (action.payload == Payload::kGradient) now_.gradients -= stage_.boundary_bytes;
        break;
      case ActionKind::kStep: peaks_.step = now_; break;
      default: break;
    }
  }

  const ActivationPeaks& peaks() const { return peaks_; }

 private:
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

  void forward(int64_t layer) {
    const LayerMemory& memory = stage_.memory.at(static_cast<size_t>(layer));
    if (layer == first_) {
      ++now_.live_microbatches;
      now_.data += stage_.data_bytes;
    }
    ActivationBytes instant = now_;
    instant.transient = memory.forward_peak_bytes;
    instant.running = kind_of(layer);
    if (fuller(instant, peaks_.forward)) peaks_.forward = instant;
    Kept& kept = kept_by(layer);
    kept.bytes += memory.saved_bytes;
    ++kept.calls;
  }

  void backward(int64_t layer) {
    const LayerMemory& memory = stage_.memory.at(static_cast<size_t>(layer));
    ActivationBytes instant = now_;
    instant.transient = memory.backward_peak_bytes;
    instant.running = kind_of(layer);
    if (layer + 1 == layer_count()) instant.gradients += memory.output_bytes;  // of the loss
    if (fuller(instant, peaks_.backward)) peaks_.backward = instant;
    Kept& kept = kept_by(layer);
    kept.bytes -= memory.saved_bytes;
    --kept.calls;
    // The gradient of the output is used up. It came from the next layer or the next stage; the
    // head, whose output is the loss, has none.
    if (layer != last_) {
      now_.gradients -= memory.output_bytes;
    } else if (layer + 1 < layer_count()) {
      now_.messages -= stage_.boundary_bytes;
    }
    now_.gradients += memory.input_gradient_bytes;
    if (layer == first_) {
      --now_.live_microbatches;
      now_.data -= stage_.data_bytes;
      if (first_ > 0) now_.messages -= stage_.boundary_bytes;  // the input that was received
    }
  }

  RunningLayer kind_of(int64_t layer) const {
    if (layer == 0) return RunningLayer::kEmbedding;
    return layer + 1 == layer_count() ? RunningLayer::kHead : RunningLayer::kBlock;
  }

  Kept& kept_by(int64_t layer) {
    switch (kind_of(layer)) {
      case RunningLayer::kEmbedding: return now_.embedding;
      case RunningLayer::kHead: return now_.head;
      case RunningLayer::kBlock:
      case RunningLayer::kNone: return now_.blocks;
    }
    check_failed(__FILE__, __LINE__, "unknown layer");
  }

  int64_t layer_count() const { return static_cast<int64_t>(stage_.memory.size()); }

  const WalkedStage& stage_;
  int64_t first_, last_;
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
