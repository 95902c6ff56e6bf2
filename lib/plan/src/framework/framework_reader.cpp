#include "framework/framework_reader.h"

#include "framework/framework_fields.h"
#include "smp/plan/text/yaml_tree.h"
#include "spec/choices.h"
#include "text/strict_map.h"

namespace smp::framework {
namespace {

constexpr std::string_view kExtends = "extends";

// Reads the value of one key into the framework.
struct ReadHabit {
  const HabitField& field;
  Framework& framework;
  text::StrictMap& map;

  void operator()(Member<bool> member) const { member(framework) = map.boolean(field.key); }
  void operator()(Member<int64_t> member) const {
    member(framework) =
        map.integer(field.key, static_cast<int64_t>(field.min), static_cast<int64_t>(field.max));
  }
  void operator()(Member<double> member) const {
    text::NumberRange range;
    range.min = field.min;
    range.max = field.max;
    const bool size = field.unit == Unit::kBytes;
    member(framework) =
        map.number(field.key, size ? text::Scale::kBytes : text::Scale::kNone, range);
  }
  void operator()(Member<std::string> member) const {
    member(framework) = field.key == "rank_order"
                            ? rank_orders()[map.choice(field.key, rank_orders())]
                            : map.text(field.key);
  }
  void operator()(Member<std::vector<std::string>> member) const {
    member(framework) = map.texts(field.key);
  }
  void operator()(Member<std::vector<PipelineKind>> member) const { read_choices(member); }
  void operator()(Member<std::vector<Sharding>> member) const { read_choices(member); }
  void operator()(Member<std::vector<MomentKind>> member) const { read_choices(member); }
  void operator()(Member<std::vector<MasterKind>> member) const { read_choices(member); }

  template <class E>
  void read_choices(Member<std::vector<E>> member) const {
    std::vector<E>& values = member(framework);
    values.clear();
    for (const size_t index : map.choices(field.key, choice_names<E>())) {
      values.push_back(static_cast<E>(index));
    }
  }
};

// Whether a section has keys that each file says of itself.
bool has_own_keys(const HabitSection& section) {
  for (const HabitField& field : habit_fields()) {
    if (field.section == section.key && field.own) return true;
  }
  return false;
}

void read_section(const HabitSection& section, text::StrictMap map, bool extends,
                  Framework& framework) {
  for (const HabitField& field : habit_fields()) {
    if (field.section != section.key) continue;
    if (!map.has(field.key) && extends && !field.own) continue;
    std::visit(ReadHabit{field, framework, map}, field.target);
  }
  map.finish();
}

}  // namespace

Framework read_framework(std::string_view text, int source, const Shipped& shipped,
                         text::Diagnostics& diagnostics) {
  Framework framework;
  const text::YamlTree tree = text::parse_yaml(text, source, diagnostics);
  if (!tree.complete) return framework;
  text::StrictMap root(tree.root, "a framework file", diagnostics);
  const bool extends = root.has(kExtends);
  if (extends) {
    const std::string& base = shipped.names[root.choice(kExtends, shipped.names)];
    framework = *shipped.read(base);
  }
  for (const HabitSection& section : habit_sections()) {
    if (!root.has(section.key) && extends && !has_own_keys(section)) continue;
    read_section(section, root.map(section.key), extends, framework);
  }
  root.finish();
  return framework;
}

}  // namespace smp::framework
