#include "smp/plan/program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "smp/plan/program/messages.h"

namespace smp::program {
namespace {

// The state of a call: which values can be read.
class Proof {
 public:
  explicit Proof(const LayerProgram& program)
      : program_(program),
        is_there_(program.values.size(), false),
        is_in_flight_(program.values.size(), false) {
    for (size_t i = 0; i < program.values.size(); ++i) {
      const Role role = program.values[i].role;
      is_there_[i] = role == Role::kInput || role == Role::kBatch || role == Role::kParameter;
    }
  }

  const std::string& problem() const { return problem_; }
  void found(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  void run(Section section) {
    const std::vector<Operation>& operations = program_.section(section);
    for (size_t i = 0; i < operations.size(); ++i) {
      where_ = fmt::format("{}, operation {} ({})", name_of(section), i + 1,
                           rules_of(operations[i].kind).name);
      run(operations[i], section);
      if (!problem_.empty()) return;
    }
    for (size_t i = 0; i < is_in_flight_.size(); ++i) {
      if (is_in_flight_[i]) {
        found(fmt::format("{}: nothing waits for {}", name_of(section), program_.values[i].name));
      }
    }
  }

  // Keeps of what the forward has made what is saved.
  void end_forward() {
    for (const ValueId id : program_.outputs) read(id, "is an output");
    std::vector<bool> kept(is_there_.size(), false);
    for (const ValueId id : program_.saved) {
      read(id, "is saved");
      kept[static_cast<size_t>(id)] = true;
    }
    for (size_t i = 0; i < is_there_.size(); ++i) {
      const Role role = program_.values[i].role;
      is_there_[i] = role == Role::kParameter || kept[i];
    }
    for (const ValueId id : program_.output_gradients) {
      if (id != kNoValue) is_there_[static_cast<size_t>(id)] = true;
    }
  }

  void drop() {
    for (const ValueId id : program_.dropped) is_there_[static_cast<size_t>(id)] = false;
  }
  void has_dropped() {
    for (const ValueId id : program_.dropped) read(id, "was dropped, and is not made again");
  }
  void end_backward(Section section) {
    for (const ValueId id : program_.gradients_of(section)) {
      if (id != kNoValue) read(id, "is the gradient of an input");
    }
  }

  const std::map<ValueId, int>& additions() const { return additions_; }
  const std::map<ValueId, int>& reads() const { return reads_; }

 private:
  void read(ValueId id, std::string_view what) {
    if (!is_there_[static_cast<size_t>(id)]) {
      found(fmt::format("{}: {} {}, and is not there", where_, program_.value(id).name, what));
    }
  }

  // `names`: as OperationRules has them.
  void check_operands(std::string_view names, const std::vector<ValueId>& operands) {
    size_t count = 0;
    while (!names.empty()) {
      const size_t end = std::min(names.find(' '), names.size());
      const std::string_view name = names.substr(0, end);
      const bool is_there = count < operands.size() && operands[count] != kNoValue;
      if (!is_there && !name.ends_with('?')) {
        found(fmt::format("{}: there is no {}", where_, name));
      }
      ++count;
      names.remove_prefix(std::min(end + 1, names.size()));
    }
    if (operands.size() > count) {
      found(fmt::format("{}: {} operands, where {} have names", where_, operands.size(), count));
    }
  }

  void run(const Operation& operation, Section section) {
    const OperationRules& rules = rules_of(operation.kind);
    check_operands(rules.inputs, operation.inputs);
    check_operands(rules.outputs, operation.outputs);
    if (!problem_.empty()) return;
    const bool is_wait = operation.kind == OperationKind::kWait;
    const bool is_view = rules.kernel == KernelClass::kView;
    for (const ValueId id : operation.inputs) {
      if (id == kNoValue) continue;
      const auto index = static_cast<size_t>(id);
      read(id, "is read");
      // What is computed again is no further use of a parameter.
      if (operation.kind != OperationKind::kNormAgain) ++reads_[id];
      if (is_wait) {
        is_in_flight_[index] = false;
      } else if (is_in_flight_[index]) {
        found(fmt::format("{}: {} is read while its message is under way", where_,
                          program_.value(id).name));
      }
    }
    for (const ValueId id : operation.outputs) {
      if (id != kNoValue) write(id, operation, section, is_view);
    }
    for (const ValueId id : operation.gradients) {
      if (program_.value(id).role != Role::kGradient) {
        found(fmt::format("{}: {} is no parameter's gradient", where_, program_.value(id).name));
      }
      ++additions_[id];
    }
    if (!waits(operation)) {
      is_in_flight_[static_cast<size_t>(operation.out(0))] = true;
      const ValueId addends = operation.in(0);
      // In place the addends are gone already.
      if (program_.value(addends).memory != program_.value(operation.out(0)).memory) {
        is_in_flight_[static_cast<size_t>(addends)] = true;
      }
    }
  }

  void write(ValueId id, const Operation& operation, Section section, bool is_view) {
    const Value& value = program_.value(id);
    const auto index = static_cast<size_t>(id);
    if (is_there_[index]) found(fmt::format("{}: {} is written twice", where_, value.name));
    if (value.role != Role::kResult) {
      found(fmt::format("{}: {} is not the layer's to write", where_, value.name));
    }
    if (value.memory != id) overwrite(value, operation, section, is_view);
    is_there_[index] = true;
  }

  void overwrite(const Value& value, const Operation& operation, Section section, bool is_view) {
    const bool is_operand = std::any_of(
        operation.inputs.begin(), operation.inputs.end(),
        [&](ValueId in) { return in != kNoValue && program_.value(in).memory == value.memory; });
    if (!is_operand) {
      found(fmt::format("{}: {} lies in memory that the operation does not read", where_,
                        value.name));
    }
    if (is_view) return;
    const Role owner = program_.value(value.memory).role;
    if (section == Section::kForward && owner != Role::kResult) {
      found(fmt::format("{}: {} overwrites {}", where_, value.name,
                        program_.value(value.memory).name));
    }
    for (size_t i = 0; i < is_there_.size(); ++i) {
      if (program_.values[i].memory == value.memory) is_there_[i] = false;
    }
  }

  const LayerProgram& program_;
  std::vector<bool> is_there_, is_in_flight_;
  std::map<ValueId, int> additions_, reads_;
  std::string where_ = "the forward's end", problem_;
};

std::string check_gradients(const LayerProgram& program, const Proof& forward,
                            const Proof& backward) {
  for (size_t i = 0; i < program.values.size(); ++i) {
    const Value& value = program.values[i];
    if (value.role != Role::kGradient) continue;
    // A gradient stands behind its parameter.
    const auto reads = forward.reads().find(static_cast<ValueId>(i) - 1);
    const int expected = reads == forward.reads().end() ? 1 : reads->second;
    const auto added = backward.additions().find(static_cast<ValueId>(i));
    const int additions = added == backward.additions().end() ? 0 : added->second;
    if (additions != expected) {
      return fmt::format("{} is added to {} times, and the forward reads {} {} times", value.name,
                         additions, program.values[i - 1].name, expected);
    }
  }
  return "";
}

// What a backward, or what makes dropped values again for it, reads of the forward.
std::string check_saved(const LayerProgram& program) {
  std::vector<bool> is_read(program.values.size(), false);
  for (const Section section :
       {Section::kBackward, Section::kDeferring, Section::kWeights, Section::kRematerialize}) {
    for (const Operation& operation : program.section(section)) {
      for (const ValueId id : operation.inputs) {
        if (id != kNoValue) is_read[static_cast<size_t>(id)] = true;
      }
    }
  }
  for (const ValueId id : program.saved) {
    if (!is_read[static_cast<size_t>(id)]) {
      return fmt::format("{} is saved, and no backward reads it", program.value(id).name);
    }
  }
  return "";
}

}  // namespace

std::string verify(const LayerProgram& program) {
  Proof forward(program);
  forward.run(Section::kForward);
  forward.end_forward();
  if (!forward.problem().empty()) return forward.problem();
  for (const bool selective : {false, true}) {
    if (selective && program.dropped.empty()) continue;
    Proof completed = forward;
    if (selective) {
      completed.drop();
      completed.run(Section::kRematerialize);
      completed.has_dropped();
    }
    Proof at_once = completed;
    at_once.run(Section::kBackward);
    at_once.end_backward(Section::kBackward);
    if (!at_once.problem().empty()) return at_once.problem();
    // Other frameworks' programs put nothing off.
    if (program.section(Section::kDeferring).empty()) {
      std::string problem = check_gradients(program, forward, at_once);
      if (!problem.empty()) return problem;
      continue;
    }
    Proof deferring = completed;
    deferring.run(Section::kDeferring);
    deferring.end_backward(Section::kDeferring);
    deferring.run(Section::kWeights);
    if (!deferring.problem().empty()) return deferring.problem();
    for (const Proof* backward : {&at_once, &deferring}) {
      if (std::string problem = check_gradients(program, forward, *backward); !problem.empty()) {
        return problem;
      }
    }
  }
  return check_saved(program);
}

}  // namespace smp::program
