#include <algorithm>
#include <initializer_list>

#include "program/habits/rules.h"

namespace smp::program {
namespace {

// Calls `rewrite` for each operation of the forward of one of the kinds; it adds what comes in its
// place.
template <typename Rewrite>
void replace(const ProgramEditor& editor, std::initializer_list<OperationKind> kinds,
             const Rewrite& rewrite) {
  std::vector<Operation> operations;
  operations.reserve(editor.forward().size() + 8);
  for (Operation& operation : editor.forward()) {
    if (std::find(kinds.begin(), kinds.end(), operation.kind) == kinds.end()) {
      operations.push_back(std::move(operation));
    } else {
      rewrite(std::move(operation), operations);
    }
  }
  editor.forward() = std::move(operations);
}

void put(std::vector<ValueId>& operands, size_t at, ValueId id) {
  operands.resize(std::max(operands.size(), at + 1), kNoValue);
  operands[at] = id;
}

int64_t tokens_of(const AttentionAttributes& a) { return a.batch * a.sequence; }

// Operands of attention.
constexpr size_t kPacked = 0, kFirstNorm = 3, kSecondNorm = 5, kTable = 7, kNormed = 9;

}  // namespace

void share_norms(const ProgramEditor& editor) {
  replace(editor, {OperationKind::kNormAgain}, [&](const Operation& again, auto& operations) {
    for (const Operation& norm : operations) {
      const bool is_same = norm.kind == OperationKind::kNorm && norm.in(0) == again.in(0) &&
                           norm.in(1) == again.in(2);
      if (!is_same) continue;
      for (Operation& reader : editor.forward()) {
        std::replace(reader.inputs.begin(), reader.inputs.end(), again.out(0), norm.out(0));
      }
      return;
    }
    operations.push_back(again);
  });
}

namespace {

// Values stay where the latents' projection has put them, and keep all of it; queries and keys are
// copied, and rotated on the way.
ValueId copy_queries_and_keys(const ProgramEditor& editor, Operation& heads) {
  const auto& widths = heads.as<LatentAttributes>();
  Value& packed = editor.program.values[static_cast<size_t>(heads.out(0))];
  packed.shape[1].size = 2 * widths.heads * widths.head_dim();
  return heads.in(1);
}

}  // namespace

void separate_heads(const ProgramEditor& editor, const Habits& habits) {
  ValueId latent_values = kNoValue;
  for (Operation& operation : editor.forward()) {
    if (operation.kind == OperationKind::kLatentHeads) {
      latent_values = copy_queries_and_keys(editor, operation);
    }
  }
  replace(editor, {OperationKind::kAttention}, [&](Operation attention, auto& operations) {
    auto& a = std::get<AttentionAttributes>(attention.attributes);
    const DType dtype = editor.program.value(attention.in(kPacked)).dtype;
    size_t turned = kPacked;
    if (latent_values != kNoValue) {
      put(attention.inputs, 1, latent_values);
      a.rotary = {};
    }
    if (a.has_head_norms) {
      const ValueId normed =
          editor.made("normed heads",
                      {{tokens_of(a), "tokens"}, {(a.heads + a.kv_heads) * a.head_dim, ""}}, dtype);
      operations.push_back(
          {OperationKind::kHeadNorms,
           {attention.in(kPacked), attention.in(kFirstNorm), attention.in(kSecondNorm)},
           {normed},
           {},
           a});
      for (size_t i = kFirstNorm; i < kTable; ++i) put(attention.inputs, i, kNoValue);
      put(attention.inputs, kNormed, normed);
      a.has_head_norms = false;
      turned = kNormed;
    }
    if (a.rotary.dim > 0) {
      const ValueId rotated = editor.over("rotated", attention.in(turned));
      operations.push_back({OperationKind::kRotate, {attention.in(turned)}, {rotated}, {}, a});
      put(attention.inputs, turned, rotated);
      a.rotary = {};
    }
    if (habits.repeats_kv_heads && a.kv_heads < a.heads && attention.in(1) == kNoValue) {
      const ValueId repeated = editor.made(
          "qkv of all heads",
          {{tokens_of(a), "tokens"}, {a.heads * (2 * a.head_dim + a.value_width()), "heads"}},
          dtype);
      operations.push_back(
          {OperationKind::kRepeatHeads, {attention.in(kPacked)}, {repeated}, {}, a});
      put(attention.inputs, kPacked, repeated);
      a.kv_heads = a.heads;
    }
    operations.push_back(std::move(attention));
  });
}

void make_scores(const ProgramEditor& editor) {
  replace(editor, {OperationKind::kAttention}, [&](const Operation& attention, auto& operations) {
    const auto& a = attention.as<AttentionAttributes>();
    const ValueId qkv = attention.in(kPacked), kv = attention.in(1);
    const ValueId scores = editor.made(
        "scores", {{a.batch * a.heads, "heads"}, {a.sequence, "queries"}, {a.keys, "keys"}},
        editor.program.value(qkv).dtype);
    operations.push_back(
        {OperationKind::kScores, {qkv, kv, attention.in(kNormed)}, {scores}, {}, a});
    ValueId weights = editor.over("weights", scores);
    operations.push_back({OperationKind::kSoftmax, {scores}, {weights}, {}, a});
    if (a.weight_dropout.is_on()) {
      const ValueId dropped = editor.made_like("weights dropped", weights);
      operations.push_back({OperationKind::kDrop, {weights}, {dropped}, {}, a.weight_dropout});
      weights = dropped;
    }
    operations.push_back(
        {OperationKind::kWeightedValues, {weights, qkv, kv}, {attention.out(0)}, {}, a});
  });
}

void make_copies(const ProgramEditor& editor) {
  for (Operation& operation : editor.forward()) {
    switch (operation.kind) {
      case OperationKind::kDrop:
      case OperationKind::kAddBranch:
        if (operation.as<DropoutAttributes>().is_on()) {
          const size_t branch = operation.kind == OperationKind::kDrop ? 0 : 1;
          put(operation.outputs, 1, editor.made_of("mask", operation.in(branch), DType::kU8));
        }
        editor.move_to_own_memory(operation.out(0));
        break;
      case OperationKind::kAdd:
      case OperationKind::kScale:
      case OperationKind::kAddPositions: editor.move_to_own_memory(operation.out(0)); break;
      default: break;
    }
  }
}

void separate_gates(const ProgramEditor& editor) {
  replace(editor, {OperationKind::kActivation, OperationKind::kExpertActivation},
          [&](Operation operation, auto& operations) {
            if (operation.kind == OperationKind::kExpertActivation) {
              if (operation.as<ExpertAttributes>().activation.gated) {
                put(operation.outputs, 1, editor.made_like("activated gate", operation.out(0)));
              }
              operations.push_back(std::move(operation));
              return;
            }
            auto attributes = operation.as<ActivationAttributes>();
            if (!attributes.gated) {
              operations.push_back(std::move(operation));
              return;
            }
            const ValueId y = operation.out(0), u = operation.in(0);
            const ValueId gate = editor.made_like("activated gate", y);
            attributes.gated = false;
            operation.attributes = attributes;
            operation.outputs = {gate};
            operations.push_back(std::move(operation));
            operations.push_back({OperationKind::kMultiply, {gate, u}, {y}, {}, {}});
          });
}

void widen_norms(const ProgramEditor& editor) {
  for (Operation& operation : editor.forward()) {
    if (operation.kind != OperationKind::kNorm) continue;
    if (operation.as<NormAttributes>().centered) continue;
    const ValueId x = operation.in(0);
    const DType dtype = editor.program.value(x).dtype;
    if (bytes_of(dtype) >= bytes_of(DType::kF32)) continue;
    put(operation.outputs, 2, editor.made_of("norm's input, wide", x, wide(dtype)));
    put(operation.outputs, 3, editor.made_like("norm before its weight", x));
  }
}

void weigh_expert_outputs(const ProgramEditor& editor) {
  ValueId weights = kNoValue;
  for (Operation& operation : editor.forward()) {
    if (operation.kind == OperationKind::kExpertActivation && operation.in(2) != kNoValue) {
      weights = operation.in(2);
      operation.inputs[2] = kNoValue;
    }
    if (operation.kind == OperationKind::kCombine) put(operation.inputs, 2, weights);
  }
}

void set_loss(const ProgramEditor& editor, const framework::LogitBytes& logit) {
  for (Operation& operation : editor.forward()) {
    if (operation.kind != OperationKind::kSoftmaxLoss) continue;
    const ValueId logits = operation.in(0);
    const int64_t count = editor.program.value(logits).elements();
    const auto element = static_cast<double>(bytes_of(editor.program.value(logits).dtype));
    // Fewer bytes than the logits and something beside them: the logits themselves are kept.
    const bool keeps_logits = logit.forward < element + logit.kept;
    const ValueId kept = keeps_logits ? editor.over("logits kept", logits)
                                      : editor.made_of_bytes("logits kept", count, logit.kept);
    operation.outputs = {operation.out(0), kNoValue, kNoValue, kNoValue, kept};
    std::get<LossAttributes>(operation.attributes).sums_apart = true;
    const double held = element + (keeps_logits ? 0 : logit.kept);
    operation.scratch_bytes =
        static_cast<int64_t>(std::max(0.0, logit.forward - held) * static_cast<double>(count));
  }
}

}  // namespace smp::program
