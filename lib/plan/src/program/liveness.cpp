#include "smp/plan/program/liveness.h"

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/program/build.h"

namespace smp::program {
namespace {

// What becomes of the memories of a program's values in one section.
class SectionWalk {
 public:
  SectionWalk(const LayerProgram& program, Section section, bool saves)
      : program_(program),
        operations_(program.section(section)),
        last_use_(program.values.size(), kUnused),
        outlives_(program.values.size(), false) {
    keep(section, saves);
    for (size_t i = 0; i < operations_.size(); ++i) {
      for (const std::vector<ValueId>* operands :
           {&operations_[i].inputs, &operations_[i].outputs}) {
        for (const ValueId id : *operands) {
          if (id != kNoValue) last_use_[memory(id)] = static_cast<int>(i);
        }
      }
    }
  }

  SectionLife life() {
    SectionLife life;
    life.freed.resize(operations_.size());
    mark_freed(life);
    int64_t now = 0;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const Operation& operation = operations_[i];
      for (const ValueId id : operation.outputs) {
        if (id != kNoValue && is_new(id)) now += program_.value(id).bytes();
      }
      life.peak_bytes = std::max(life.peak_bytes, now + scratch_bytes(operation));
      for (const ValueId id : life.freed[i]) {
        if (static_cast<ValueId>(memory(id)) == id) now -= program_.value(id).bytes();
      }
      life.alive_bytes.push_back(now);
    }
    life.end_bytes = now;
    return life;
  }

 private:
  static constexpr int kUnused = -1;

  int64_t scratch_bytes(const Operation& operation) const {
    if (operation.scratch_bytes != kScratchOfRules) return operation.scratch_bytes;
    const auto scratch = rules_of(operation.kind).scratch_bytes;
    return scratch != nullptr ? scratch({program_, operation}) : 0;
  }

  size_t memory(ValueId id) const { return static_cast<size_t>(program_.value(id).memory); }

  // Whether an operation's output takes memory: not where it overwrites, and not where the memory
  // is made again by rematerialization under the name of a value in it.
  bool is_new(ValueId id) const { return static_cast<ValueId>(memory(id)) == id; }

  void outlives(const std::vector<ValueId>& values) {
    for (const ValueId id : values) {
      if (id != kNoValue) outlives_[memory(id)] = true;
    }
  }

  // Memories that are in use behind the section, or are not its own to free.
  void keep(Section section, bool saves) {
    for (size_t i = 0; i < program_.values.size(); ++i) {
      const Role role = program_.values[i].role;
      if (role != Role::kResult && role != Role::kOutputGradient) outlives_[i] = true;
    }
    switch (section) {
      case Section::kForward:
        outlives(program_.outputs);
        if (saves) outlives(program_.saved);
        break;
      case Section::kBackward: outlives(program_.input_gradients); break;
      case Section::kDeferring:
        outlives(program_.deferred_input_gradients);
        for (const Operation& operation : program_.section(Section::kWeights)) {
          outlives(operation.inputs);
        }
        break;
      case Section::kWeights: break;
      case Section::kRematerialize: outlives(program_.saved); break;
    }
  }

  // What is freed when: a value's slot with the memory, whoever of them made it.
  void mark_freed(SectionLife& life) const {
    for (size_t id = 0; id < program_.values.size(); ++id) {
      const size_t root = memory(static_cast<ValueId>(id));
      if (!outlives_[root] && last_use_[root] != kUnused) {
        life.freed[static_cast<size_t>(last_use_[root])].push_back(static_cast<ValueId>(id));
      }
    }
  }

  const LayerProgram& program_;
  const std::vector<Operation>& operations_;
  std::vector<int> last_use_;   // of each memory, by its first value
  std::vector<bool> outlives_;  // likewise
};

int64_t bytes_of_memories(const LayerProgram& program, const std::vector<ValueId>& values,
                          const std::vector<Role>& roles) {
  std::vector<ValueId> memories;
  for (const ValueId id : values) {
    if (id != kNoValue) memories.push_back(program.value(id).memory);
  }
  std::sort(memories.begin(), memories.end());
  memories.erase(std::unique(memories.begin(), memories.end()), memories.end());
  int64_t bytes = 0;
  for (const ValueId id : memories) {
    const Value& value = program.value(id);
    if (std::find(roles.begin(), roles.end(), value.role) != roles.end()) bytes += value.bytes();
  }
  return bytes;
}

int64_t bytes_of_values(const LayerProgram& program, const std::vector<ValueId>& values) {
  int64_t bytes = 0;
  for (const ValueId id : values) bytes += id == kNoValue ? 0 : program.value(id).bytes();
  return bytes;
}

}  // namespace

SectionLife life_of(const LayerProgram& program, Section section, bool saves) {
  return SectionWalk(program, section, saves).life();
}

std::vector<ValueId> deferred_values(const LayerProgram& program) {
  std::vector<bool> is_own(program.values.size(), false);
  std::vector<ValueId> deferred;
  for (const Operation& operation : program.section(Section::kWeights)) {
    for (const ValueId id : operation.inputs) {
      if (id != kNoValue && !is_own[static_cast<size_t>(id)]) deferred.push_back(id);
    }
    for (const ValueId id : operation.outputs) {
      if (id != kNoValue) is_own[static_cast<size_t>(id)] = true;
    }
  }
  return deferred;
}

LayerMemory memory_of(const LayerProgram& program) {
  LayerMemory memory;
  memory.output_bytes = bytes_of_memories(program, program.outputs, {Role::kResult});
  memory.input_gradient_bytes = bytes_of_values(program, program.input_gradients);

  const SectionLife forward = life_of(program, Section::kForward);
  memory.reread_bytes = bytes_of_memories(program, program.reread, {Role::kResult});
  memory.saved_bytes = forward.end_bytes - memory.reread_bytes;
  memory.forward_peak_bytes = forward.peak_bytes;
  memory.backward_peak_bytes = life_of(program, Section::kBackward).peak_bytes;
  if (!program.dropped.empty()) {
    memory.recomputable_bytes = bytes_of_memories(program, program.dropped, {Role::kResult});
    memory.complete_peak_bytes = life_of(program, Section::kRematerialize).peak_bytes;
  }
  if (program.section(Section::kDeferring).empty()) return memory;
  memory.deferred_backward_peak_bytes = life_of(program, Section::kDeferring).peak_bytes;
  const std::vector<ValueId> deferred = deferred_values(program);
  if (deferred.empty()) return memory;
  memory.deferred_bytes =
      bytes_of_memories(program, deferred, {Role::kResult, Role::kInput, Role::kOutputGradient});
  std::vector<ValueId> saved;
  std::vector<bool> is_saved(program.values.size(), false);
  for (const ValueId id : program.saved) {
    is_saved[static_cast<size_t>(program.value(id).memory)] = true;
  }
  for (const ValueId id : deferred) {
    if (is_saved[static_cast<size_t>(program.value(id).memory)]) saved.push_back(id);
  }
  memory.deferred_saved_bytes = bytes_of_memories(program, saved, {Role::kResult, Role::kInput});
  memory.weight_peak_bytes = life_of(program, Section::kWeights).peak_bytes;
  return memory;
}

LayerMemory memory_of(const ModelSpec& model, const model::LayerSpec& layer,
                      const model::LayerCall& call) {
  return memory_of(build(model, layer, call));
}

}  // namespace smp::program
