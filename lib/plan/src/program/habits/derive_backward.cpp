#include <algorithm>
#include <cmath>
#include <utility>

#include "program/habits/rules.h"
#include "program/layers/region.h"
#include "smp/plan/base/check.h"

// The backward of a forward, operation by operation from its end, as PyTorch's autograd derives it:
// each gradient is a value of its own, and gradients of a value that several operations read are
// added. What a weight's gradient reads of an input that tensor ranks share is gathered again.
namespace smp::program {
namespace {

constexpr std::string_view kGatheredAgain = "tensor.again";

std::string_view backward_of(std::string_view label) {
  if (label == kForwardLabel) return kBackwardLabel;
  return label == "context.forward" ? "context.backward" : "expert.backward";
}

class Backward {
 public:
  Backward(LayerProgram& program, const Habits& habits)
      : editor_{program},
        program_(program),
        habits_(habits),
        gradients_(program.values.size()),
        other_(program.values.size(), kNoValue),
        producer_(program.values.size(), nullptr),
        needed_(program.values.size(), false) {
    for (const ValueId id : program.inputs) {
      if (program.value(id).role == Role::kInput) needed_[at(id)] = true;
    }
    for (const Operation& operation : editor_.forward()) mark(operation);
  }

  void derive() {
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const ValueId gradient = program_.output_gradients[i];
      if (gradient != kNoValue) add(program_.outputs[i], gradient);
    }
    // Not of the forward itself, which grows no further: its operations stay where they are.
    const std::vector<Operation>& forward = editor_.forward();
    for (auto operation = forward.rbegin(); operation != forward.rend(); ++operation) {
      derive(*operation);
    }
    program_.input_gradients.clear();
    for (const ValueId id : program_.inputs) program_.input_gradients.push_back(summed(id));
    std::move(operations_.begin(), operations_.end(),
              std::back_inserter(program_.sections[static_cast<int>(Section::kBackward)]));
  }

 private:
  // A gradient, or this rank's addend of one.
  struct Part {
    ValueId id;
    bool is_addend;
  };

  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  const Value& value(ValueId id) const { return program_.value(id); }
  static bool is_parameter(const Value& value) { return value.role == Role::kParameter; }

  void mark(const Operation& operation) {
    bool is_needed = false;
    for (const ValueId id : operation.inputs) {
      if (id == kNoValue) continue;
      is_needed = is_needed || needed_[at(id)] || (habits_.trains && is_parameter(value(id)));
    }
    for (const ValueId id : operation.outputs) {
      if (id == kNoValue) continue;
      producer_[at(id)] = &operation;
      needed_[at(id)] = is_needed;
    }
  }
  bool needs(ValueId id) const { return id != kNoValue && needed_[at(id)]; }

  ValueId emit(OperationKind kind, std::vector<ValueId> inputs, ValueId output,
               Attributes attributes = {}, std::vector<ValueId> gradients = {},
               int64_t scratch = 0) {
    emit_all(kind, std::move(inputs),
             output == kNoValue ? std::vector<ValueId>{} : std::vector<ValueId>{output},
             std::move(attributes), std::move(gradients), scratch);
    return output;
  }
  void emit_all(OperationKind kind, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
                Attributes attributes = {}, std::vector<ValueId> gradients = {},
                int64_t scratch = 0) {
    std::erase(gradients, kNoValue);
    operations_.push_back({kind, std::move(inputs), std::move(outputs), std::move(gradients),
                           std::move(attributes), scratch});
  }
  ValueId like(ValueId of) { return editor_.made_like("d " + value(of).name, of); }

  void add(ValueId of, ValueId gradient, bool is_addend = false) {
    if (gradient != kNoValue && needed_[at(of)])
      gradients_[at(of)].push_back({gradient, is_addend});
  }

  ValueId sum(ValueId of, const std::vector<Part>& parts, bool of_addends) {
    ValueId result = kNoValue;
    for (const Part& part : parts) {
      if (part.is_addend != of_addends) continue;
      result =
          result == kNoValue ? part.id : emit(OperationKind::kAdd, {part.id, result}, like(of));
    }
    return result;
  }

  // The gradient of a value; kNoValue if there is none. Addends are summed over the tensor ranks,
  // unless the value was gathered from them: then that is the gather's own backward.
  ValueId summed(ValueId of) {
    if (of == kNoValue || at(of) >= gradients_.size()) return kNoValue;
    const std::vector<Part> parts = std::exchange(gradients_[at(of)], {});
    const bool was_gathered =
        producer_[at(of)] != nullptr && producer_[at(of)]->kind == OperationKind::kAllGather;
    ValueId addends = sum(of, parts, true);
    const ValueId whole = sum(of, parts, false);
    if (addends != kNoValue && !was_gathered) {
      addends = emit(OperationKind::kAllReduce, {addends},
                     editor_.over(value(addends).name, addends), MessageAttributes{kBackwardLabel});
    }
    if (addends == kNoValue || whole == kNoValue) return addends == kNoValue ? whole : addends;
    return emit(OperationKind::kAdd, {whole, addends}, like(of));
  }

  ValueId gradient_of(ValueId parameter) const {
    return parameter == kNoValue || !habits_.trains ? kNoValue : parameter + 1;
  }

  // What a linear layer keeps of its input, for the gradient of its weight.
  ValueId kept_input(ValueId x) {
    const Operation* producer = producer_[at(x)];
    const bool was_gathered = producer != nullptr && producer->kind == OperationKind::kAllGather;
    ValueId kept = was_gathered ? producer->in(0) : x;
    if (habits_.narrow_bytes > 0) kept = narrow(kept);
    if (!was_gathered) return kept;
    const ValueId again =
        habits_.narrow_bytes > 0
            ? editor_.made_of_bytes(value(x).name, value(x).elements(), habits_.narrow_bytes)
            : editor_.made_like(value(x).name, x);
    return emit(OperationKind::kAllGather, {kept}, again, MessageAttributes{kGatheredAgain});
  }
  // The value in less than 16 bits: cast by the forward, once for all that read it.
  ValueId narrow(ValueId x) {
    for (const auto& [of, cast] : casts_) {
      if (of == x) return cast;
    }
    const ValueId cast =
        editor_.made_of_bytes(value(x).name + ", cast", value(x).elements(), habits_.narrow_bytes);
    casts_.emplace_back(x, cast);
    return cast;
  }

  void weight_gradient(OperationKind kind, ValueId dy, ValueId kept, ValueId weight,
                       const Attributes& attributes, std::vector<ValueId> others) {
    const ValueId gradient = gradient_of(weight);
    if (gradient == kNoValue) return;
    std::vector<ValueId> inputs{dy, kept};
    inputs.insert(inputs.end(), others.begin(), others.end());
    if (habits_.fused_weight_gradients) {
      emit(kind, std::move(inputs), kNoValue, attributes, {gradient});
      return;
    }
    const ValueId made = emit(kind, std::move(inputs),
                              editor_.made_like("d " + value(weight).name, weight), attributes);
    emit(OperationKind::kAccumulate, {made}, kNoValue, {}, {gradient});
  }

  void bias_gradient(ValueId dy, ValueId bias) {
    if (gradient_of(bias) == kNoValue) return;
    emit(OperationKind::kBiasGradient, {dy}, kNoValue, {}, {gradient_of(bias)});
  }

  static int64_t parts_of(const Value& value) {
    return value.shape.size() > 1 ? value.shape[1].parts : 1;
  }

  void product(const Operation& forward, ValueId dy) {
    const ValueId x = forward.in(0), weight = forward.in(1);
    if (needs(x)) {
      const bool is_addend = parts_of(value(forward.out(0))) > parts_of(value(x));
      add(x,
          emit(OperationKind::kInputGradient, {dy, weight, kNoValue}, like(x), ProductAttributes{}),
          is_addend);
    }
    if (!habits_.trains) return;
    const bool is_logits = forward.kind == OperationKind::kLogits;
    const ValueId kept = is_logits ? kept_logits_input(x) : kept_input(x);
    weight_gradient(OperationKind::kWeightGradient, dy, kept, weight, ProductAttributes{}, {});
  }
  // The head's product is never narrow.
  ValueId kept_logits_input(ValueId x) {
    const Operation* producer = producer_[at(x)];
    if (producer == nullptr || producer->kind != OperationKind::kAllGather) return x;
    return emit(OperationKind::kAllGather, {producer->in(0)}, editor_.made_like(value(x).name, x),
                MessageAttributes{kGatheredAgain});
  }

  void norm(const Operation& forward, ValueId dy) {
    const ValueId x = forward.in(0);
    const ValueId wide = forward.out(2), unweighted = forward.out(3);
    const bool reads_x = wide == kNoValue || habits_.trains;
    std::vector<ValueId> inputs{dy,
                                reads_x ? x : kNoValue,
                                forward.out(1),
                                forward.in(1),
                                kNoValue,
                                wide,
                                habits_.trains ? unweighted : kNoValue};
    add(x, emit(OperationKind::kNormBackward, std::move(inputs), like(x), forward.attributes,
                {gradient_of(forward.in(1)), gradient_of(forward.in(2))}));
  }

  void attention(const Operation& forward, ValueId dy) {
    const auto& a = forward.as<AttentionAttributes>();
    const ValueId qkv = forward.in(0), kv = forward.in(1);
    std::vector<ValueId> inputs = forward.inputs;
    const ValueId sinks = forward.in(8), normed = forward.in(9);
    inputs.resize(9, kNoValue);
    inputs.insert(inputs.end(), {forward.out(0), dy, forward.out(1), normed});
    const ValueId d_qkv = like(qkv), d_kv = kv == kNoValue ? kNoValue : like(kv);
    // The gradient of the queries is summed in fp32.
    const int64_t queries = a.batch * a.sequence * a.heads * a.head_dim;
    emit_all(OperationKind::kAttentionBackward, std::move(inputs), {d_qkv, d_kv}, a,
             {gradient_of(sinks)}, queries * bytes_of(value(qkv).dtype));
    add(qkv, d_qkv);
    if (kv != kNoValue) add(kv, d_kv);
  }

  void weighted_values(const Operation& forward, ValueId dy) {
    const auto& a = forward.as<AttentionAttributes>();
    const ValueId weights = forward.in(0), qkv = forward.in(1);
    const ValueId d_weights = like(weights);
    const ValueId d_values =
        editor_.made("d values", {{a.batch * a.keys, "tokens"}, {a.kv_heads * a.value_width(), ""}},
                     value(qkv).dtype);
    emit_all(OperationKind::kWeightedValuesBackward, {dy, weights, qkv, forward.in(2)},
             {d_weights, d_values}, a);
    add(weights, d_weights);
    other_[at(qkv)] = d_values;
  }
  void scores(const Operation& forward, ValueId dy) {
    const ValueId qkv = forward.in(0), kv = forward.in(1);
    const ValueId d_qkv = like(qkv), d_kv = kv == kNoValue ? kNoValue : like(kv);
    emit_all(OperationKind::kScoresBackward, {dy, other_[at(qkv)], qkv, kv, forward.in(2)},
             {d_qkv, d_kv}, forward.attributes);
    add(qkv, d_qkv);
    if (kv != kNoValue) add(kv, d_kv);
  }

  // Over all heads: the sums that a row's gradient needs are those of all tensor ranks.
  void qk_norm(const Operation& forward, ValueId dy) {
    const ValueId qkv = forward.in(0), squares = forward.in(1);
    const ValueId q_weight = forward.in(2), k_weight = forward.in(3);
    ValueId sums = like(squares);
    emit(OperationKind::kQkNormSums, {dy, qkv, squares, q_weight, k_weight}, sums,
         forward.attributes, {gradient_of(q_weight), gradient_of(k_weight)});
    if (forward.as<QkNormAttributes>().ranks > 1) {
      sums = emit(OperationKind::kAllReduce, {sums}, editor_.over(value(sums).name, sums),
                  MessageAttributes{"tensor.qk_norms"});
    }
    add(qkv, emit(OperationKind::kQkNormBackward, {dy, qkv, squares, sums, q_weight, k_weight},
                  like(qkv), forward.attributes));
  }

  // Its gradient becomes that of what it was made of.
  void head_norms(const Operation& forward) {
    const ValueId qkv = forward.in(0), dy = summed(qkv);
    if (dy == kNoValue) return;
    std::vector<ValueId> inputs{dy};
    inputs.insert(inputs.end(), forward.inputs.begin(), forward.inputs.end());
    add(qkv,
        emit(OperationKind::kHeadNormsBackward, std::move(inputs), editor_.over(value(dy).name, dy),
             forward.attributes, {gradient_of(forward.in(1)), gradient_of(forward.in(2))}));
  }

  void expert_activation(const Operation& forward, ValueId dy) {
    const ValueId up = forward.in(0), gate = forward.in(1), weights = forward.in(2);
    const ValueId d_up = like(up), d_gate = gate == kNoValue ? kNoValue : like(gate);
    const ValueId d_weights = weights == kNoValue ? kNoValue : like(weights);
    emit_all(OperationKind::kExpertActivationBackward,
             {up, gate, weights, forward.in(3), forward.in(4), dy, forward.out(1)},
             {d_up, d_gate, kNoValue, d_weights}, forward.attributes);
    add(up, d_up);
    if (gate != kNoValue) add(gate, d_gate);
    if (weights != kNoValue) add(weights, d_weights);
  }

  void combine(const Operation& forward, ValueId dy) {
    const ValueId x = forward.in(0), weights = forward.in(2);
    const ValueId dx = like(x);
    if (weights == kNoValue) {
      emit(OperationKind::kDispatch, {dy, forward.in(1), kNoValue}, dx, expert_attributes_);
    } else {
      const ValueId d_weights = like(weights);
      emit_all(OperationKind::kDispatch, {dy, forward.in(1), kNoValue, x}, {dx, d_weights},
               expert_attributes_);
      add(weights, d_weights);
    }
    add(x, dx);
  }

  void route(const Operation& forward) {
    const ValueId d_weights = summed(forward.out(2));
    if (d_weights == kNoValue) return;
    const ValueId scores = forward.in(0);
    add(scores, emit(OperationKind::kRouteBackward,
                     {forward.out(0), forward.out(1), forward.out(2), d_weights, kNoValue, scores,
                      forward.out(4)},
                     like(scores), forward.attributes));
  }

  void scan(const Operation& forward, ValueId dy) {
    const auto& scan = forward.as<ScanAttributes>();
    const ValueId x = forward.in(0);
    // The convolution again with its gradient, and the chunks' states with theirs.
    const Value& of = value(x);
    const int64_t tokens = of.shape.front().size;
    const int64_t scratch =
        tokens * (bytes_of(of.dtype) * (2 * scan.convolved + scan.inner) +
                  static_cast<int64_t>(std::ceil(2 * scan.states)) * bytes_of(DType::kF32));
    add(x, emit(OperationKind::kScanBackward, {dy, x, other_[at(x)]}, like(x), scan, {}, scratch));
  }

  void loss(const Operation& forward) {
    const ValueId dy = summed(forward.out(0)), logits = forward.in(0), kept = forward.out(4);
    const double count = static_cast<double>(value(logits).elements());
    const auto held = static_cast<double>(bytes_of(value(logits).dtype)) + habits_.logit.kept;
    add(logits, emit(OperationKind::kSoftmaxGradient,
                     {kNoValue, forward.in(1), kNoValue, kNoValue, dy, kept}, like(logits),
                     forward.attributes, {},
                     static_cast<int64_t>(std::max(0.0, habits_.logit.backward - held) * count)));
  }

  void message(const Operation& forward, OperationKind kind, ValueId dy) {
    const MessageAttributes attributes{backward_of(forward.as<MessageAttributes>().label)};
    add(forward.in(0), emit(kind, {dy}, like(forward.in(0)), attributes));
  }

  void derive(const Operation& forward) {
    switch (forward.kind) {
      case OperationKind::kHeadNorms: return head_norms(forward);
      case OperationKind::kRoute: return route(forward);
      case OperationKind::kSoftmaxLoss: return loss(forward);
      case OperationKind::kSplitColumns: return split_columns(forward);
      default: break;
    }
    const ValueId dy = forward.outputs.empty() ? kNoValue : summed(forward.out(0));
    if (dy != kNoValue) derive(forward, dy);
  }

  void split_columns(const Operation& forward) {
    const ValueId a = summed(forward.out(0)), b = summed(forward.out(1));
    if (a == kNoValue && b == kNoValue) return;
    SMP_CHECK(a != kNoValue && b != kNoValue);
    add(forward.in(0), emit(OperationKind::kJoinColumns, {a, b}, like(forward.in(0))));
  }

  void derive(const Operation& forward, ValueId dy) {
    const ValueId x = forward.in(0);
    switch (forward.kind) {
      case OperationKind::kNorm: return norm(forward, dy);
      case OperationKind::kProduct:
      case OperationKind::kLogits: return product(forward, dy);
      case OperationKind::kAddBias: bias_gradient(dy, forward.in(1)); return add(x, dy);
      case OperationKind::kAttention: return attention(forward, dy);
      case OperationKind::kQkNorm: return qk_norm(forward, dy);
      case OperationKind::kScores: return scores(forward, dy);
      case OperationKind::kWeightedValues: return weighted_values(forward, dy);
      case OperationKind::kSoftmax:
        return add(x, emit(OperationKind::kSoftmaxBackward, {dy, forward.out(0)}, like(x),
                           forward.attributes));
      case OperationKind::kRotate:
        return add(x, emit(OperationKind::kRotateBackward, {dy}, editor_.over(value(dy).name, dy),
                           forward.attributes));
      case OperationKind::kRepeatHeads:
        return add(x, emit(OperationKind::kRepeatHeadsBackward, {dy}, like(x), forward.attributes));
      case OperationKind::kActivation: {
        const ValueId du = emit(OperationKind::kActivationBackward,
                                {x, forward.in(1), dy, other_[at(x)]}, like(x), forward.attributes);
        bias_gradient(du, forward.in(1));
        return add(x, du);
      }
      case OperationKind::kMultiply: {
        const ValueId da = like(x);
        other_[at(forward.in(1))] = editor_.made_like("d " + value(forward.in(1)).name, x);
        emit_all(OperationKind::kMultiplyBackward, {dy, x, forward.in(1)},
                 {da, other_[at(forward.in(1))]});
        return add(x, da);
      }
      case OperationKind::kDrop:
        return add(x,
                   emit(OperationKind::kDrop, {dy, forward.out(1)}, like(x), forward.attributes));
      case OperationKind::kAdd: add(x, dy); return add(forward.in(1), dy);
      case OperationKind::kAddBranch: {
        add(x, dy);
        const ValueId branch = forward.in(1);
        if (forward.as<DropoutAttributes>().is_on() && needs(branch)) {
          dy = emit(OperationKind::kDrop, {dy, forward.out(1)}, like(branch), forward.attributes);
        }
        bias_gradient(dy, forward.in(2));
        return add(branch, dy);
      }
      case OperationKind::kScale:
        return add(x, emit(OperationKind::kScale, {dy, kNoValue}, like(x), forward.attributes));
      case OperationKind::kAllReduce: return add(x, dy);
      case OperationKind::kAllGather: return message(forward, OperationKind::kReduceScatter, dy);
      case OperationKind::kReduceScatter: return message(forward, OperationKind::kAllGather, dy);
      case OperationKind::kAllToAll: return message(forward, OperationKind::kAllToAll, dy);
      case OperationKind::kOwnTokens:
        return add(
            x, emit(OperationKind::kAllGather, {dy}, like(x), MessageAttributes{kBackwardLabel}));
      case OperationKind::kTakeRows:
        if (!habits_.trains) return;
        emit(OperationKind::kAddRows, {x, dy}, kNoValue, forward.attributes,
             {gradient_of(forward.in(1))});
        return;
      case OperationKind::kAddPositions:
        if (habits_.trains) {
          emit(OperationKind::kPositionGradient, {dy}, kNoValue, forward.attributes,
               {gradient_of(forward.in(1))});
        }
        return add(x, dy);
      case OperationKind::kCopy:
        if (gradient_of(x) != kNoValue) {
          emit(OperationKind::kAccumulate, {dy}, kNoValue, {}, {gradient_of(x)});
        }
        return;
      case OperationKind::kJoinColumns: {
        const ValueId a = like(x), b = like(forward.in(1));
        emit_all(OperationKind::kSplitColumns, {dy}, {a, b});
        add(x, a);
        return add(forward.in(1), b);
      }
      case OperationKind::kLatentHeads: return latent_heads(forward, dy);
      case OperationKind::kScan: return scan(forward, dy);
      case OperationKind::kRouterScores:
        if (habits_.trains) {
          emit(OperationKind::kRouterWeightGradient, {dy, x}, kNoValue, {},
               {gradient_of(forward.in(1))});
        }
        return add(x, emit(OperationKind::kRouterInputGradient, {dy, forward.in(1)}, like(x)));
      case OperationKind::kDispatch:
        expert_attributes_ = forward.attributes;
        return add(x, emit(OperationKind::kCombine, {dy, forward.in(1)}, like(x)));
      case OperationKind::kCombine: return combine(forward, dy);
      case OperationKind::kExpertProduct:
        add(x, emit(OperationKind::kExpertInputGradient, {dy, forward.in(1), kNoValue}, like(x),
                    forward.attributes));
        if (!habits_.trains) return;
        return weight_gradient(OperationKind::kExpertWeightGradient, dy,
                               habits_.narrow_bytes > 0 ? narrow(x) : x, forward.in(1),
                               forward.attributes, {kNoValue});
      case OperationKind::kExpertActivation: return expert_activation(forward, dy);
      default: check_failed(__FILE__, __LINE__, "an operation without a gradient");
    }
  }

  // The gradients of latents are addends where ranks share the heads.
  void latent_heads(const Operation& forward, ValueId dy) {
    const ValueId q = forward.in(0), kv = forward.in(1), k_rotary = forward.in(2);
    const ValueId d_q = like(q), d_kv = like(kv), d_k_rotary = like(k_rotary);
    emit_all(OperationKind::kLatentHeadsBackward, {dy}, {d_q, d_kv, d_k_rotary},
             forward.attributes);
    add(q, d_q);
    add(kv, d_kv);
    add(k_rotary, d_k_rotary, parts_of(value(q)) > 1);
  }

 public:
  // What linear layers keep in less than 16 bits is cast ahead of the first that reads it.
  void add_casts() {
    if (casts_.empty()) return;
    std::vector<Operation> operations;
    operations.reserve(editor_.forward().size() + casts_.size());
    for (const Operation& operation : editor_.forward()) {
      if (operation.kind == OperationKind::kProduct ||
          operation.kind == OperationKind::kExpertProduct) {
        ValueId kept = operation.in(0);
        const Operation* producer = producer_[at(kept)];
        const bool was_gathered =
            producer != nullptr && producer->kind == OperationKind::kAllGather;
        if (was_gathered) kept = producer->in(0);
        for (auto& [of, cast] : casts_) {
          if (of != kept) continue;
          operations.push_back({OperationKind::kCast, {of}, {cast}, {}, {}, 0});
          of = kNoValue;  // done
        }
      }
      operations.push_back(operation);
    }
    editor_.forward() = std::move(operations);
  }

 private:
  const ProgramEditor editor_;
  LayerProgram& program_;
  const Habits& habits_;
  std::vector<std::vector<Part>> gradients_;  // of the forward's values
  std::vector<ValueId> other_;                // of the same: gradients of some of their columns
  std::vector<const Operation*> producer_;
  std::vector<bool> needed_;  // whether a gradient is
  std::vector<std::pair<ValueId, ValueId>> casts_;
  std::vector<Operation> operations_;
  Attributes expert_attributes_ = ExpertAttributes{};
};

}  // namespace

void derive_backward(LayerProgram& program, const Habits& habits) {
  Backward backward(program, habits);
  backward.derive();
  backward.add_casts();
}

}  // namespace smp::program
