#include "smp/plan/framework/framework_format.h"

#include <fmt/format.h>

#include "framework/framework_fields.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/text/json.h"
#include "spec/choices.h"

namespace smp::framework {
namespace {

std::string range_words(const ResidualRange& range) {
  return fmt::format("{:.2f} to {:.2f}, {}", range.low, range.high,
                     range.rows == 0 ? "no runs" : fmt::format("{} runs", range.rows));
}

text::OrderedJson range_json(const ResidualRange& range) {
  return {{"low", range.low}, {"high", range.high}, {"rows", range.rows}};
}

struct HabitJson {
  Framework& framework;

  template <class T>
  text::OrderedJson operator()(Member<T> member) const {
    return member(framework);
  }
  text::OrderedJson operator()(Member<std::vector<PipelineKind>> member) const {
    return names_of(member(framework));
  }
  text::OrderedJson operator()(Member<std::vector<MasterKind>> member) const {
    return names_of(member(framework));
  }
  text::OrderedJson operator()(Member<std::vector<MomentKind>> member) const {
    return names_of(member(framework));
  }
  text::OrderedJson operator()(Member<std::vector<Sharding>> member) const {
    return names_of(member(framework));
  }

  template <class E>
  static text::OrderedJson names_of(const std::vector<E>& values) {
    text::OrderedJson names = text::OrderedJson::array();
    for (const E value : values) names.push_back(choice_name(value));
    return names;
  }
};

}  // namespace

std::string frameworks_text() {
  const auto line = [](const std::string& name, const std::string& memory, const std::string& time,
                       const std::string& versions) {
    return fmt::format("{:<20} {:<24} {:<24} {}\n", name, memory, time, versions);
  };
  std::string out = line("name", "measured / predicted:", "", "");
  out += line("", "memory", "time of a step", "versions");
  for (const NamedFramework& known : named_frameworks()) {
    const Framework& framework = *shipped_framework(known.name);
    out += line(framework.name, range_words(framework.memory), range_words(framework.time),
                framework.versions);
  }
  return out;
}

std::string frameworks_json() {
  text::OrderedJson list = text::OrderedJson::array();
  for (const NamedFramework& known : named_frameworks()) {
    const Framework& framework = *shipped_framework(known.name);
    list.push_back({{"name", framework.name},
                    {"title", framework.title},
                    {"versions", framework.versions},
                    {"memory", range_json(framework.memory)},
                    {"time", range_json(framework.time)}});
  }
  return list.dump(2) + "\n";
}

std::string framework_json(const Framework& framework) {
  Framework copy = framework;
  text::OrderedJson json;
  for (const HabitField& field : habit_fields()) {
    json[std::string(field.section)][std::string(field.key)] =
        std::visit(HabitJson{copy}, field.target);
  }
  return json.dump(2) + "\n";
}

std::string habits_markdown() {
  std::string out;
  for (const HabitSection& section : habit_sections()) {
    out += fmt::format("\n### {}\n\n{}\n\n| key | value | meaning |\n|---|---|---|\n", section.key,
                       section.doc);
    for (const HabitField& field : habit_fields()) {
      if (field.section != section.key) continue;
      out += fmt::format("| `{}` | {} | {} |\n", field.key, value_words(field), field.doc);
    }
  }
  return out;
}

}  // namespace smp::framework
