#include <string_view>

#include "program/habits/rules.h"
#include "program/layers/region.h"

namespace smp::program {
namespace {

// The modules to which operations belong, as a job's list of what is computed again names them.
enum class Module {
  kOther,
  kAttentionNorm,
  kMlpNorm,
  kCore,      // of attention
  kLatentUp,  // projections of latents, and what follows them
  kMlp,
  kExperts,
  kSharedExpert
};

Module of_parameter(std::string_view name) {
  if (name.starts_with("attention_norm.")) return Module::kAttentionNorm;
  if (name.starts_with("mlp_norm.")) return Module::kMlpNorm;
  if (name.starts_with("mlp.shared_expert")) return Module::kSharedExpert;
  if (name.starts_with("mlp.router") || name.starts_with("mlp.experts")) return Module::kExperts;
  if (name.starts_with("mlp.")) return Module::kMlp;
  if (name.starts_with("attention.q_up") || name.starts_with("attention.kv_up")) {
    return Module::kLatentUp;
  }
  return Module::kOther;
}

// The module of a norm that is named alone: the one of a hybrid's layer, whose mixer tells what it
// is. A block has its own norms by name; its further one is behind it.
Module of_only_norm(const LayerProgram& program) {
  Module module = Module::kMlpNorm;
  for (const Operation& operation : program.section(Section::kForward)) {
    if (operation.kind == OperationKind::kScan) return Module::kOther;
    if (operation.kind == OperationKind::kAttention || operation.kind == OperationKind::kScores) {
      module = Module::kAttentionNorm;
    }
    for (const ValueId id : operation.inputs) {
      if (id == kNoValue || program.value(id).role != Role::kParameter) continue;
      if (program.value(id).name.starts_with("attention_norm.")) return Module::kOther;
    }
  }
  return module;
}

class Modules {
 public:
  Modules(const LayerProgram& program, bool has_experts)
      : program_(program),
        has_experts_(has_experts),
        of_only_norm_(of_only_norm(program)),
        of_value_(program.values.size(), Module::kOther) {}

  // In the order of the forward.
  Module next(const Operation& operation) {
    const Module module = module_of(operation);
    for (const ValueId id : operation.outputs) {
      if (id != kNoValue) of_value_[static_cast<size_t>(id)] = module;
    }
    return module;
  }

 private:
  Module module_of(const Operation& operation) const {
    switch (operation.kind) {
      case OperationKind::kAttention:
      case OperationKind::kScores:
      case OperationKind::kSoftmax:
      case OperationKind::kWeightedValues: return Module::kCore;
      case OperationKind::kLatentHeads: return Module::kLatentUp;
      case OperationKind::kAdd:
      case OperationKind::kAddBranch: return Module::kOther;
      case OperationKind::kRoute:
      case OperationKind::kDispatch:
      case OperationKind::kCombine: return Module::kExperts;
      default: break;
    }
    for (const ValueId id : operation.inputs) {
      if (id != kNoValue && program_.value(id).role == Role::kParameter) {
        const std::string& name = program_.value(id).name;
        return name.starts_with("norm.") ? of_only_norm_ : of_parameter(name);
      }
    }
    const ValueId x = operation.in(0);
    const Module before = x == kNoValue ? Module::kOther : of_value_[static_cast<size_t>(x)];
    // A gather or a cast of what a norm gave is the first step of what reads it.
    const bool is_first_step =
        operation.kind == OperationKind::kAllGather || operation.kind == OperationKind::kCast;
    if (is_first_step && before == Module::kMlpNorm) {
      return has_experts_ ? Module::kSharedExpert : Module::kMlp;
    }
    if (is_first_step && before == Module::kCore) return Module::kOther;
    if (before == Module::kMlpNorm || before == Module::kAttentionNorm) return Module::kOther;
    return before;
  }

  const LayerProgram& program_;
  const bool has_experts_;
  const Module of_only_norm_;
  std::vector<Module> of_value_;
};

bool has_experts(const LayerProgram& program) {
  for (const Operation& operation : program.section(Section::kForward)) {
    if (operation.kind == OperationKind::kRoute) return true;
  }
  return false;
}

bool is_again(const Habits& habits, Module module, const Operation& operation, bool has_experts) {
  if (habits.dropped == Dropped::kFirstProducts) {
    return module == Module::kMlp && operation.kind == OperationKind::kProduct;
  }
  const RecomputeModules& modules = habits.modules;
  switch (module) {
    case Module::kCore: return modules.core_attention;
    case Module::kLatentUp: return modules.mla_up;
    case Module::kAttentionNorm: return modules.norms && habits.norm_before_attention;
    case Module::kMlpNorm:
      if (has_experts || habits.norm_before_mlp) return modules.norms;
      return modules.mlp;  // a part of the first product
    case Module::kMlp: return modules.mlp && !has_experts;
    case Module::kExperts:
      if (modules.moe) return true;
      return modules.moe_activation && operation.kind == OperationKind::kExpertActivation;
    case Module::kSharedExpert: return modules.moe || modules.shared_experts;
    case Module::kOther: return false;
  }
  return false;
}

// Whether what a module puts out goes as well, and not only what is inside it: its operations are
// then made again before the backward of what reads it (Megatron's CheckpointWithoutOutput).
bool drops_output(const Habits& habits, Module module, const Operation& operation) {
  if (habits.dropped == Dropped::kFirstProducts) return true;
  switch (module) {
    case Module::kAttentionNorm:
    case Module::kMlpNorm: return habits.modules.norms;
    case Module::kLatentUp: return true;
    case Module::kExperts:
      return !habits.modules.moe && operation.kind == OperationKind::kExpertActivation;
    default: return false;
  }
}

class Rematerialization {
 public:
  Rematerialization(LayerProgram& program, const Habits& habits)
      : program_(program), is_again_(program.section(Section::kForward).size(), false) {
    const bool experts = has_experts(program);
    Modules modules(program, experts);
    bool was_first_product = false;
    for (size_t i = 0; i < is_again_.size(); ++i) {
      const Operation& operation = program.section(Section::kForward)[i];
      const Module module = modules.next(operation);
      bool again = is_again(habits, module, operation, experts);
      if (habits.dropped == Dropped::kFirstProducts && operation.kind == OperationKind::kProduct) {
        again = again && !was_first_product;  // the second one's result goes into the sum
        was_first_product = was_first_product || again;
      }
      is_again_[i] = again;
      keeps_output_.push_back(again && !drops_output(habits, module, operation));
    }
  }

  void add_section() {
    const std::vector<bool> leaves = read_outside();
    std::vector<Operation> again;
    for (size_t i = 0; i < is_again_.size(); ++i) {
      if (!is_again_[i]) continue;
      Operation operation = program_.section(Section::kForward)[i];
      for (ValueId& id : operation.outputs) {
        // What others have kept is made again, and is of no use.
        if (id != kNoValue && keeps_output_[i] && leaves[static_cast<size_t>(id)]) {
          id = ProgramEditor{program_}.made_like(program_.value(id).name + " again", id);
        }
      }
      again.push_back(std::move(operation));
    }
    program_.sections[static_cast<int>(Section::kRematerialize)] = std::move(again);
  }

 private:
  // Of each value whether an operation of the forward that is not made again reads it.
  std::vector<bool> read_outside() const {
    std::vector<bool> is_read(program_.values.size(), false);
    const std::vector<Operation>& forward = program_.section(Section::kForward);
    for (size_t i = 0; i < forward.size(); ++i) {
      if (is_again_[i]) continue;
      for (const ValueId id : forward[i].inputs) {
        if (id != kNoValue) is_read[static_cast<size_t>(id)] = true;
      }
    }
    return is_read;
  }

  LayerProgram& program_;
  std::vector<bool> is_again_, keeps_output_;  // of the forward's operations
};

}  // namespace

void rematerialize(LayerProgram& program, const Habits& habits) {
  if (habits.dropped == Dropped::kNothing) return;
  Rematerialization(program, habits).add_section();
}

}  // namespace smp::program
