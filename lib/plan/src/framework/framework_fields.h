#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "smp/plan/framework/framework.h"

// The one table of the keys of a framework file. The reader and the table of docs/frameworks.md are
// loops over it, so a key is added in one place. Immutable.
namespace smp::framework {

template <class T>
using Member = T& (*)(Framework&);

using Target = std::variant<Member<bool>, Member<int64_t>, Member<double>, Member<std::string>,
                            Member<std::vector<std::string>>, Member<std::vector<PipelineKind>>,
                            Member<std::vector<Sharding>>, Member<std::vector<MasterKind>>,
                            Member<std::vector<MomentKind>>>;

enum class Unit { kNone, kBytes, kElements, kShare };

struct HabitField {
  std::string_view section;
  std::string_view key;
  Target target;
  std::string_view doc;
  Unit unit = Unit::kNone;
  double min = 0;
  double max = 1e15;
  bool own = false;  // each file says it of itself: not taken from the file that it extends
};

struct HabitSection {
  std::string_view key;
  std::string_view doc;
};

const std::vector<HabitSection>& habit_sections();
const std::vector<HabitField>& habit_fields();  // section by section

// The words that rank_order may be.
const std::vector<std::string>& rank_orders();

// The kind of value that a key takes, in words: "true or false", "a share from 0 to 1".
std::string value_words(const HabitField& field);

}  // namespace smp::framework
