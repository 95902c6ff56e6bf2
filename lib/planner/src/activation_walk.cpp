#include "activation_walk.h"

#include "smp/plan/check.h"

namespace smp {
namespace {

bool fuller(const ActivationBytes& a, const ActivationBytes& b) { return a.total() > b.total(); }

class Walk {
 public:
  Walk(const std::vector<int64_t>& layers, const std::vector<LayerMemory>& memory,
       int64_t boundary_bytes)
      : first_(layers.front()), last_(layers.back()), memory_(memory), boundary_(boundary_bytes) {}

  void take(const Action& action) {
    switch (action.kind) {
      case ActionKind::kReceive:
        // An activation lives until the backward of the first layer; a gradient until that of the
        // last one has consumed it.
        if (carries_data(action)) now_.messages += boundary_;
        break;
      case ActionKind::kForward: forward(action.layer); break;
      case ActionKind::kBackward: backward(action.layer); break;
      case ActionKind::kSendWait:
        // What is sent forward is the last layer's output, which its backward needs anyway.
        if (action.payload == Payload::kGradient) now_.gradients -= boundary_;
        break;
      case ActionKind::kStep: peaks_.step = now_; break;
      default: break;
    }
  }

  const ActivationPeaks& peaks() const { return peaks_; }

 private:
  static bool carries_data(const Action& action) {
    return action.payload == Payload::kActivation || action.payload == Payload::kGradient;
  }

  void forward(int64_t layer) {
    const LayerMemory& memory = memory_.at(static_cast<size_t>(layer));
    if (layer == first_) ++now_.live_microbatches;
    ActivationBytes instant = now_;
    instant.transient = memory.forward_peak_bytes;
    if (fuller(instant, peaks_.forward)) peaks_.forward = instant;
    now_.saved += memory.saved_bytes;
  }

  void backward(int64_t layer) {
    const LayerMemory& memory = memory_.at(static_cast<size_t>(layer));
    ActivationBytes instant = now_;
    instant.transient = memory.backward_peak_bytes;
    if (fuller(instant, peaks_.backward)) peaks_.backward = instant;
    now_.saved -= memory.saved_bytes;
    // The gradient of the output is used up. It came from the next layer or the next stage; the
    // head, whose output is the loss, has none.
    if (layer != last_) {
      now_.gradients -= memory.output_bytes;
    } else if (layer + 1 < layer_count()) {
      now_.messages -= boundary_;
    }
    now_.gradients += memory.input_gradient_bytes;
    if (layer == first_) {
      --now_.live_microbatches;
      if (first_ > 0) now_.messages -= boundary_;  // the input that was received
    }
  }

  int64_t layer_count() const { return static_cast<int64_t>(memory_.size()); }

  int64_t first_, last_;
  const std::vector<LayerMemory>& memory_;
  int64_t boundary_;
  ActivationBytes now_;
  ActivationPeaks peaks_;
};

}  // namespace

ActivationPeaks walk_activations(const std::vector<Action>& actions,
                                 const std::vector<int64_t>& layers,
                                 const std::vector<LayerMemory>& memory, int64_t boundary_bytes) {
  SMP_CHECK(!layers.empty());
  Walk walk(layers, memory, boundary_bytes);
  for (const Action& action : actions) walk.take(action);
  return walk.peaks();
}

}  // namespace smp
