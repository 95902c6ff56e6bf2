#include "smp/plan/program/fusions.h"

#include <algorithm>

#include "smp/plan/base/check.h"

namespace smp::program {
namespace {

constexpr Section kEverySection[] = {Section::kForward, Section::kBackward, Section::kDeferring,
                                     Section::kWeights, Section::kRematerialize};

std::vector<Operation>& operations_of(LayerProgram& program, Section section) {
  return program.sections[static_cast<int>(section)];
}

bool reads(const Operation& operation, ValueId id) {
  return std::find(operation.inputs.begin(), operation.inputs.end(), id) != operation.inputs.end();
}

// The value is `to` wherever it was `from`, for readers and as memory.
void replace(LayerProgram& program, ValueId from, ValueId to) {
  for (const Section section : kEverySection) {
    for (Operation& operation : operations_of(program, section)) {
      std::replace(operation.inputs.begin(), operation.inputs.end(), from, to);
    }
  }
}

// Whether every reader of a value takes a bias with it; then the bias need not be added first.
bool may_take_bias(const LayerProgram& program, ValueId biased, OperationKind forward,
                   OperationKind backward) {
  int readers = 0;
  for (const Section section : kEverySection) {
    for (const Operation& operation : program.section(section)) {
      if (!reads(operation, biased)) continue;
      ++readers;
      const bool is_operand = operation.kind == forward || operation.kind == backward;
      if (!is_operand || operation.in(0) != biased) return false;
    }
  }
  return readers > 0;
}

// A gradient of a bias right behind an operation that can add to it.
void fold_bias_gradient(std::vector<Operation>& operations, size_t at) {
  if (at + 1 >= operations.size()) return;
  const Operation& next = operations[at + 1];
  if (next.kind != OperationKind::kBiasGradient || next.in(0) != operations[at].out(0)) return;
  operations[at].gradients = next.gradients;
  operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(at) + 1);
}

// Moves the addition of a bias into the operations that read the sum: `place` is the operand.
int fuse_bias(LayerProgram& program, OperationKind forward, OperationKind backward, size_t place,
              bool adds_gradient) {
  int changed = 0;
  std::vector<Operation>& operations = operations_of(program, Section::kForward);
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind != OperationKind::kAddBias) continue;
    const ValueId sum = operations[i].out(0), addend = operations[i].in(0),
                  bias = operations[i].in(1);
    if (!may_take_bias(program, sum, forward, backward)) continue;
    for (const Section section : kEverySection) {
      std::vector<Operation>& all = operations_of(program, section);
      std::erase_if(all, [&](const Operation& operation) {
        return operation.kind == OperationKind::kAddBias && operation.out(0) == sum;
      });
      for (size_t j = 0; j < all.size(); ++j) {
        if (!reads(all[j], sum)) continue;
        all[j].inputs[place] = bias;
        if (adds_gradient && all[j].kind == backward) fold_bias_gradient(all, j);
      }
    }
    replace(program, sum, addend);
    ++changed;
    --i;
  }
  return changed;
}

// An activation adds the bias of the product before it.
int bias_and_activation(LayerProgram& program) {
  return fuse_bias(program, OperationKind::kActivation, OperationKind::kActivationBackward, 1,
                   true);
}

// Attention adds the bias of queries, keys and values as it copies a head.
int bias_and_attention(LayerProgram& program) {
  return fuse_bias(program, OperationKind::kAttention, OperationKind::kAttentionBackward, 2, false);
}

// Bias, dropout and the sum with the residual stream become one pass. They stand one behind the
// other in one memory; bias or dropout may be absent.
int branch_sum(LayerProgram& program) {
  int changed = 0;
  std::vector<Operation>& operations = operations_of(program, Section::kForward);
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind != OperationKind::kAdd) continue;
    Operation sum = operations[i];
    ValueId branch = sum.in(1), bias = kNoValue;
    DropoutAttributes dropout;
    size_t first = i;
    if (first > 0 && operations[first - 1].kind == OperationKind::kDrop &&
        operations[first - 1].out(0) == branch) {
      --first;
      dropout = operations[first].as<DropoutAttributes>();
      branch = operations[first].in(0);
    }
    if (first > 0 && operations[first - 1].kind == OperationKind::kAddBias &&
        operations[first - 1].out(0) == branch) {
      --first;
      bias = operations[first].in(1);
      branch = operations[first].in(0);
    }
    if (first == i) continue;
    operations[first] = {
        OperationKind::kAddBranch, {sum.in(0), branch, bias}, sum.outputs, {}, dropout};
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                     operations.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    i = first;
    ++changed;
  }
  return changed;
}

// A sum with the residual stream, whose norm comes next, gives both in one pass over the rows.
int sum_and_norm(LayerProgram& program) {
  int changed = 0;
  std::vector<Operation>& operations = operations_of(program, Section::kForward);
  for (size_t i = 0; i + 1 < operations.size(); ++i) {
    const Operation& sum = operations[i];
    const Operation& norm = operations[i + 1];
    const bool has_branch = sum.kind == OperationKind::kAddBranch;
    if (!has_branch && sum.kind != OperationKind::kAdd) continue;
    if (norm.kind != OperationKind::kNorm || norm.in(0) != sum.out(0)) continue;
    SumAndNormAttributes attributes{{}, norm.as<NormAttributes>()};
    if (has_branch) attributes.dropout = sum.as<DropoutAttributes>();
    operations[i] = {OperationKind::kSumAndNorm,
                     {sum.in(0), sum.in(1), sum.in(2), norm.in(1), norm.in(2)},
                     {sum.out(0), norm.out(0), norm.out(1)},
                     {},
                     attributes};
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ++changed;
  }
  return changed;
}

}  // namespace

const std::vector<FusionRule>& fusion_rules() {
  static const std::vector<FusionRule> rules = {
      {"bias and activation", &Fusions::bias_and_activation, bias_and_activation},
      // Other frameworks add attention's bias where the product ends.
      {"bias and attention", &Fusions::bias_and_attention, bias_and_attention, false},
      {"branch sum", &Fusions::branch_sum, branch_sum},
      {"sum and norm", &Fusions::sum_and_norm, sum_and_norm, false},
  };
  return rules;
}

}  // namespace smp::program
