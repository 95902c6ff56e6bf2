#include "cost/activation_walk.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "smp/plan/base/check.h"

namespace smp::cost {
namespace {

bool fuller(const ActivationBytes& a, const ActivationBytes& b) { return a.total() > b.total(); }

class Walk {
 public:
  explicit Walk(const WalkedStage& stage) : stage_(stage) {}

  void take(const schedule::Action& action) {
    switch (action.kind) {
      // An activation lives until the backward of its chunk's first layer, a gradient until that of
      // the last one has used it, a tied gradient until it has been added.
      case schedule::ActionKind::kReceive: now_.messages += received_bytes(action); break;
      case schedule::ActionKind::kReceiveWait:
        if (action.payload == schedule::Payload::kTiedGradient) now_.messages -= stage_.tied_bytes;
        break;
      case schedule::ActionKind::kForward: forward(layer(action.layer)); break;
      case schedule::ActionKind::kBackward: backward(action); break;
      case schedule::ActionKind::kWeight: weight(action); break;
      case schedule::ActionKind::kRecompute: recompute(layer(action.layer)); break;
      case schedule::ActionKind::kOffload: offload(action); break;
      case schedule::ActionKind::kFetch: fetch(action); break;
      case schedule::ActionKind::kSendWait:
        if (action.payload == schedule::Payload::kGradient) {
          now_.gradients -= before(opening(action.chunk)).handed_gradient_bytes;
        }
        // Where it is kept, what was sent forward is the last layer's output.
        if (action.payload == schedule::Payload::kActivation && frees_sent_outputs()) {
          const WalkedLayer& sender = closing(action.chunk);
          kept_by(sender).bytes -= freed_when_sent(sender);
        }
        break;
      case schedule::ActionKind::kStep: peaks_.step = now_; break;
      default: break;
    }
  }

  const ActivationPeaks& peaks() const { return peaks_; }

 private:
  const WalkedLayer& layer(int64_t index) const {
    return stage_.layers.at(static_cast<size_t>(index));
  }

  // Layers are in model order.
  static const WalkedLayer& before(const WalkedLayer& layer) { return *(&layer - 1); }
  bool is_first(const WalkedLayer& layer) const { return &layer == stage_.layers.data(); }
  const WalkedLayer& opening(int64_t chunk) const {
    return layer(stage_.chunks.at(static_cast<size_t>(chunk)).first);
  }
  const WalkedLayer& closing(int64_t chunk) const {
    return layer(stage_.chunks.at(static_cast<size_t>(chunk)).second);
  }

  int64_t received_bytes(const schedule::Action& action) const {
    switch (action.payload) {
      case schedule::Payload::kActivation: return before(opening(action.chunk)).handed_bytes;
      case schedule::Payload::kGradient: return closing(action.chunk).handed_gradient_bytes;
      case schedule::Payload::kTiedGradient: return stage_.tied_bytes;
      case schedule::Payload::kTiedWeight:  // lands in its place
      case schedule::Payload::kNone: return 0;
    }
    check_failed(__FILE__, __LINE__, "unknown payload");
  }

  void forward(const WalkedLayer& layer) {
    if (layer.opens_chunk) {
      ++now_.live;
      now_.data += layer.data_bytes;
      ActivationBytes reading = now_;
      reading.data += layer.whole_bytes;
      if (fuller(reading, peaks_.forward)) peaks_.forward = reading;
    }
    ActivationBytes instant = now_;
    instant.transient = layer.memory.forward_peak_bytes;
    instant.running = layer.kind;
    if (fuller(instant, peaks_.forward)) peaks_.forward = instant;
    Kept& kept = kept_by(layer);
    kept.bytes += layer.memory.output_bytes + (checkpointed(layer) ? 0 : kept_beside_output(layer));
    if (stage_.in_engine && is_loss(layer)) kept.bytes -= layer.memory.output_bytes;  // a number
    ++kept.calls;
    if (checkpointed(layer) && !layer.keeps_input) release_own_input(layer);
  }

  // The forward again; its output lives on where the next layer is computed again from it.
  void recompute(const WalkedLayer& layer) {
    if (!stage_.in_engine) return;  // part of the backward's transient bytes
    ActivationBytes instant = now_;
    instant.transient =
        layer.selective ? layer.memory.complete_peak_bytes : layer.memory.forward_peak_bytes;
    instant.again = instant.transient;
    instant.running = layer.kind;
    if (fuller(instant, peaks_.backward)) peaks_.backward = instant;
    now_.recomputed.bytes +=
        layer.selective ? layer.memory.recomputable_bytes : beside_output(layer);
    if (layer.feeds_recompute) now_.recomputed.bytes += layer.memory.output_bytes;
    ++now_.recomputed.calls;
  }

  // What a call keeps moves to the host, its input included: all else has used that.
  void offload(const schedule::Action& action) {
    if (!stage_.in_engine) return;
    const WalkedLayer& layer = this->layer(action.layer);
    if (!checkpointed(layer)) kept_by(layer).bytes -= kept_beside_output(layer);
    release_own_input(layer);
    host_bytes_ += offloaded_bytes(layer);
    peaks_.host_bytes = std::max(peaks_.host_bytes, host_bytes_);
  }
  void fetch(const schedule::Action& action) {
    if (!stage_.in_engine) return;
    const WalkedLayer& layer = this->layer(action.layer);
    host_bytes_ -= offloaded_bytes(layer);
    now_.fetched.bytes += offloaded_bytes(layer);
    ++now_.fetched.calls;
    fetched_.insert(call_of(action));
  }

  void backward(const schedule::Action& action) {
    const WalkedLayer& layer = this->layer(action.layer);
    ActivationBytes instant = now_;
    instant.transient = engine_defers(layer) ? layer.memory.deferred_backward_peak_bytes
                                             : layer.memory.backward_peak_bytes;
    instant.again = layer.again_bytes;
    instant.running = layer.kind;
    if (is_loss(layer)) instant.gradients += layer.memory.output_bytes;
    if (fuller(instant, peaks_.backward)) peaks_.backward = instant;
    if (stage_.in_engine) {
      release_call(action);
    } else if (is_loss(layer) || !stage_.defers_weight_gradients) {
      release(layer);
    }
    if (engine_defers(layer)) {
      add_deferred(layer, 1);
      release_gradient(layer, layer.passed_gradient_bytes);
    } else {
      release_gradient(layer, layer.handed_gradient_bytes);
    }
    now_.gradients += layer.memory.input_gradient_bytes;
    if (!stage_.defers_weight_gradients) end_unit(layer);
  }

  void weight(const schedule::Action& action) {
    const WalkedLayer& layer = this->layer(action.layer);
    if (engine_defers(layer)) {
      ActivationBytes instant = now_;
      instant.transient = layer.memory.weight_peak_bytes;
      instant.running = layer.kind;
      if (fuller(instant, peaks_.backward)) peaks_.backward = instant;
      add_deferred(layer, -1);
      release_gradient(layer, deferred_output_gradient(layer));
    }
    // The loss is released by its backward already.
    if (!stage_.in_engine && !is_loss(layer)) release(layer);
    end_unit(layer);
  }

  bool engine_defers(const WalkedLayer& layer) const {
    return stage_.in_engine && stage_.defers_weight_gradients && layer.memory.deferred_bytes > 0;
  }
  // One call more or fewer. The gradient of the output stays where it is counted.
  void add_deferred(const WalkedLayer& layer, int64_t calls) {
    const int64_t saved = layer.memory.deferred_saved_bytes;
    now_.deferred.bytes += calls * saved;
    now_.deferred.calls += calls;
    now_.deferred_made.bytes +=
        calls * (layer.memory.deferred_bytes - saved - deferred_output_gradient(layer));
    now_.deferred_made.calls += calls;
  }
  static int64_t deferred_output_gradient(const WalkedLayer& layer) {
    return layer.handed_gradient_bytes - layer.passed_gradient_bytes;
  }

  // A microbatch has left a chunk with its last gradient.
  void end_unit(const WalkedLayer& layer) {
    if (!layer.opens_chunk) return;
    --now_.live;
    now_.data -= layer.data_bytes;
    if (!stage_.in_engine) release_received(layer);
  }

  // What a call kept.
  void release(const WalkedLayer& layer) {
    Kept& kept = kept_by(layer);
    kept.bytes -= layer.memory.saved_bytes;
    --kept.calls;
    const bool sent = layer.closes_chunk && !layer.hands_over && !is_loss(layer);
    if (sent && frees_sent_outputs()) kept.bytes += freed_when_sent(layer);  // gone already
  }

  // What a call of the engine kept, and its input, wherever they are. The output lives by a rule of
  // its own.
  void release_call(const schedule::Action& action) {
    const WalkedLayer& layer = this->layer(action.layer);
    const bool was_fetched = fetched_.erase(call_of(action)) > 0;
    --kept_by(layer).calls;
    if (was_fetched) {
      now_.fetched.bytes -= offloaded_bytes(layer);
      --now_.fetched.calls;
    }
    if (checkpointed(layer)) {
      now_.recomputed.bytes -= beside_output(layer);
      --now_.recomputed.calls;
      if (!layer.keeps_input) now_.recomputed.bytes -= before(layer).memory.output_bytes;
    } else if (!was_fetched) {
      kept_by(layer).bytes -= kept_beside_output(layer);
    }
    if (layer.selective) {
      now_.recomputed.bytes -= layer.memory.recomputable_bytes;
      --now_.recomputed.calls;
    }
    const bool has_input = !was_fetched && (!checkpointed(layer) || layer.keeps_input);
    if (has_input) release_own_input(layer);
    release_shared_input(layer);
  }

  // The gradient of the output is used up. It came from the next layer or the next stage; the head,
  // whose output is the loss, has none.
  void release_gradient(const WalkedLayer& layer, int64_t bytes) {
    if (!layer.closes_chunk || layer.hands_over) {
      now_.gradients -= bytes;
    } else if (!is_loss(layer)) {
      now_.messages -= bytes;
    }
  }

  // The input has been used for the last time: it is what the layer before made, or a message. What
  // layers behind use as well lives until the layer's backward, whatever becomes of the rest.
  void release_own_input(const WalkedLayer& layer) {
    if (!is_first(layer)) input_of(layer) -= own_input_bytes(layer);
  }
  void release_shared_input(const WalkedLayer& layer) {
    if (!is_first(layer)) input_of(layer) -= input_bytes(layer) - own_input_bytes(layer);
  }
  int64_t& input_of(const WalkedLayer& layer) {
    return is_message(layer) ? now_.messages : kept_by(before(layer)).bytes;
  }

  void release_received(const WalkedLayer& layer) {
    if (!is_first(layer) && !layer.takes_over) {
      now_.messages -= before(layer).handed_bytes;
    }
  }

  using Call = std::tuple<int16_t, int32_t, int32_t>;  // chunk, microbatch, layer
  static Call call_of(const schedule::Action& action) {
    return {action.chunk, action.microbatch, action.layer};
  }
  bool checkpointed(const WalkedLayer& layer) const { return stage_.in_engine && layer.recomputed; }
  static int64_t beside_output(const WalkedLayer& layer) {
    return layer.memory.saved_bytes - layer.memory.output_bytes;
  }
  static int64_t kept_beside_output(const WalkedLayer& layer) {
    return beside_output(layer) - (layer.selective ? layer.memory.recomputable_bytes : 0);
  }
  static bool is_message(const WalkedLayer& layer) {
    return layer.opens_chunk && !layer.takes_over;
  }
  int64_t input_bytes(const WalkedLayer& layer) const {
    if (is_first(layer)) return layer.field_bytes;
    return is_message(layer) ? before(layer).handed_bytes : before(layer).memory.output_bytes;
  }
  int64_t own_input_bytes(const WalkedLayer& layer) const {
    if (layer.shared_input_bytes == 0) return input_bytes(layer);
    return before(layer).handed_bytes - layer.shared_input_bytes;
  }
  // What it hands on beside that was there before it, and stays.
  int64_t freed_when_sent(const WalkedLayer& layer) const {
    return stage_.in_engine ? layer.memory.output_bytes : layer.handed_bytes;
  }
  int64_t offloaded_bytes(const WalkedLayer& layer) const {
    return own_input_bytes(layer) + (layer.recomputed ? 0 : kept_beside_output(layer));
  }

  static bool is_loss(const WalkedLayer& layer) { return layer.kind == RunningLayer::kHead; }
  bool frees_sent_outputs() const { return stage_.frees_sent_outputs || stage_.in_engine; }

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
  ActivationBytes now_;
  ActivationPeaks peaks_;
  int64_t host_bytes_ = 0;
  std::set<Call> fetched_;
};

}  // namespace

ActivationPeaks walk_activations(const std::vector<schedule::Action>& actions,
                                 const WalkedStage& stage) {
  SMP_CHECK(!stage.layers.empty());
  Walk walk(stage);
  for (const schedule::Action& action : actions) walk.take(action);
  return walk.peaks();
}

}  // namespace smp::cost
