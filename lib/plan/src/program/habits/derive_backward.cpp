#include <algorithm>
#include <cmath>
#include <utility>

#include "program/habits/gradients.h"
#include "program/habits/rules.h"
#include "program/layers/region.h"
#include "smp/plan/base/check.h"

// The backward of a forward, operation by operation from its end, as PyTorch's autograd derives it:
// a rule for each kind of operation.
namespace smp::program {
namespace {

std::string_view backward_of(std::string_view label) {
  if (label == kForwardLabel) return kBackwardLabel;
  return label == "context.forward" ? "context.backward" : "expert.backward";
}

class Backward : private Gradients {
 public:
  Backward(LayerProgram& program, const Habits& habits)
      : Gradients(program, habits), program_(program) {}

  void derive() {
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const ValueId gradient = program_.output_gradients[i];
      if (gradient != kNoValue) add(program_.outputs[i], gradient);
    }
    const std::vector<Operation>& forward = editor().forward();
    for (auto operation = forward.rbegin(); operation != forward.rend(); ++operation) {
      derive(*operation);
    }
    program_.input_gradients.clear();
    for (const ValueId id : program_.inputs) program_.input_gradients.push_back(summed(id));
    finish();
  }

 private:
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
    if (!habits().trains) return;
    // The head's product is never narrow.
    const ValueId kept = kept_input(x, forward.kind != OperationKind::kLogits);
    add_weight(OperationKind::kWeightGradient, dy, kept, weight, ProductAttributes{});
  }

  void norm(const Operation& forward, ValueId dy) {
    const ValueId x = forward.in(0);
    const ValueId wide = forward.out(2), unweighted = forward.out(3);
    const bool reads_x = wide == kNoValue || habits().trains;
    std::vector<ValueId> inputs{dy,
                                reads_x ? x : kNoValue,
                                forward.out(1),
                                forward.in(1),
                                kNoValue,
                                wide,
                                habits().trains ? unweighted : kNoValue};
    add(x, emit(OperationKind::kNormBackward, std::move(inputs), like(x), forward.attributes,
                {of_parameter(forward.in(1)), of_parameter(forward.in(2))}));
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
             {of_parameter(sinks)}, queries * bytes_of(value(qkv).dtype));
    add(qkv, d_qkv);
    if (kv != kNoValue) add(kv, d_kv);
  }

  void weighted_values(const Operation& forward, ValueId dy) {
    const auto& a = forward.as<AttentionAttributes>();
    const ValueId weights = forward.in(0), qkv = forward.in(1);
    const ValueId d_weights = like(weights);
    const ValueId d_values = editor().made(
        "d values", {{a.batch * a.keys, "tokens"}, {a.kv_heads * a.value_width(), ""}},
        value(qkv).dtype);
    emit_all(OperationKind::kWeightedValuesBackward, {dy, weights, qkv, forward.in(2)},
             {d_weights, d_values}, a);
    add(weights, d_weights);
    columns(qkv) = d_values;
  }
  void scores(const Operation& forward, ValueId dy) {
    const ValueId qkv = forward.in(0), kv = forward.in(1);
    const ValueId d_qkv = like(qkv), d_kv = kv == kNoValue ? kNoValue : like(kv);
    emit_all(OperationKind::kScoresBackward, {dy, columns(qkv), qkv, kv, forward.in(2)},
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
         forward.attributes, {of_parameter(q_weight), of_parameter(k_weight)});
    if (forward.as<QkNormAttributes>().ranks > 1) {
      sums = emit(OperationKind::kAllReduce, {sums}, editor().over(value(sums).name, sums),
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
    add(qkv, emit(OperationKind::kHeadNormsBackward, std::move(inputs),
                  editor().over(value(dy).name, dy), forward.attributes,
                  {of_parameter(forward.in(1)), of_parameter(forward.in(2))}));
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
    add(x, emit(OperationKind::kScanBackward, {dy, x, columns(x)}, like(x), scan, {}, scratch));
  }

  void loss(const Operation& forward) {
    const ValueId dy = summed(forward.out(0)), logits = forward.in(0), kept = forward.out(4);
    const double count = static_cast<double>(value(logits).elements());
    const auto held = static_cast<double>(bytes_of(value(logits).dtype)) + habits().logit.kept;
    add(logits, emit(OperationKind::kSoftmaxGradient,
                     {kNoValue, forward.in(1), kNoValue, kNoValue, dy, kept}, like(logits),
                     forward.attributes, {},
                     static_cast<int64_t>(std::max(0.0, habits().logit.backward - held) * count)));
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
      case OperationKind::kAddBias: add_bias(dy, forward.in(1)); return add(x, dy);
      case OperationKind::kAttention: return attention(forward, dy);
      case OperationKind::kQkNorm: return qk_norm(forward, dy);
      case OperationKind::kScores: return scores(forward, dy);
      case OperationKind::kWeightedValues: return weighted_values(forward, dy);
      case OperationKind::kSoftmax:
        return add(x, emit(OperationKind::kSoftmaxBackward, {dy, forward.out(0)}, like(x),
                           forward.attributes));
      case OperationKind::kRotate:
        return add(x, emit(OperationKind::kRotateBackward, {dy}, editor().over(value(dy).name, dy),
                           forward.attributes));
      case OperationKind::kRepeatHeads:
        return add(x, emit(OperationKind::kRepeatHeadsBackward, {dy}, like(x), forward.attributes));
      case OperationKind::kActivation: {
        const ValueId du = emit(OperationKind::kActivationBackward,
                                {x, forward.in(1), dy, columns(x)}, like(x), forward.attributes);
        add_bias(du, forward.in(1));
        return add(x, du);
      }
      case OperationKind::kMultiply: {
        const ValueId da = like(x);
        columns(forward.in(1)) = editor().made_like("d " + value(forward.in(1)).name, x);
        emit_all(OperationKind::kMultiplyBackward, {dy, x, forward.in(1)},
                 {da, columns(forward.in(1))});
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
        add_bias(dy, forward.in(2));
        return add(branch, dy);
      }
      case OperationKind::kScale:
        return add(x, emit(OperationKind::kScale, {dy, kNoValue}, like(x), forward.attributes));
      case OperationKind::kAllReduce: return add(x, dy);
      case OperationKind::kAllGather: return message(forward, OperationKind::kReduceScatter, dy);
      case OperationKind::kReduceScatter: return message(forward, OperationKind::kAllGather, dy);
      case OperationKind::kExchange: {
        ExchangeAttributes back = forward.as<ExchangeAttributes>();
        back.label = backward_of(back.label);
        back.to_heads = !back.to_heads;
        return add(x, emit(OperationKind::kExchange, {dy}, like(x), back));
      }
      case OperationKind::kAllToAll: return message(forward, OperationKind::kAllToAll, dy);
      case OperationKind::kOwnTokens:
        return add(
            x, emit(OperationKind::kAllGather, {dy}, like(x), MessageAttributes{kBackwardLabel}));
      case OperationKind::kTakeRows:
        if (!habits().trains) return;
        emit(OperationKind::kAddRows, {x, dy}, kNoValue, forward.attributes,
             {of_parameter(forward.in(1))});
        return;
      case OperationKind::kAddPositions:
        if (habits().trains) {
          emit(OperationKind::kPositionGradient, {dy}, kNoValue, forward.attributes,
               {of_parameter(forward.in(1))});
        }
        return add(x, dy);
      case OperationKind::kCopy:
        if (of_parameter(x) != kNoValue) {
          emit(OperationKind::kAccumulate, {dy}, kNoValue, {}, {of_parameter(x)});
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
        if (habits().trains) {
          emit(OperationKind::kRouterWeightGradient, {dy, x}, kNoValue, {},
               {of_parameter(forward.in(1))});
        }
        return add(x, emit(OperationKind::kRouterInputGradient, {dy, forward.in(1)}, like(x)));
      case OperationKind::kDispatch:
        expert_attributes_ = forward.attributes;
        return add(x, emit(OperationKind::kCombine, {dy, forward.in(1)}, like(x)));
      case OperationKind::kCombine: return combine(forward, dy);
      case OperationKind::kExpertProduct:
        add(x, emit(OperationKind::kExpertInputGradient, {dy, forward.in(1), kNoValue}, like(x),
                    forward.attributes));
        if (!habits().trains) return;
        return add_weight(OperationKind::kExpertWeightGradient, dy, kept_input(x, true),
                          forward.in(1), forward.attributes, {kNoValue});
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

  LayerProgram& program_;
  Attributes expert_attributes_ = ExpertAttributes{};
};

}  // namespace

void derive_backward(LayerProgram& program, const Habits& habits) {
  Backward(program, habits).derive();
}

}  // namespace smp::program
