#include "smp/plan/framework/framework_catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <mutex>
#include <vector>

#include "framework/framework_load.h"
#include "framework/framework_reader.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/suggest.h"
#include "text/other_words.h"

namespace smp::framework {
namespace {

std::vector<std::string> framework_names() {
  std::vector<std::string> names;
  for (const NamedFramework& known : named_frameworks()) names.emplace_back(known.name);
  return names;
}

Shipped shipped_files() {
  return {framework_names(), [](const std::string& name) { return shipped_framework(name); }};
}

std::shared_ptr<const Framework> read_shipped(const NamedFramework& known) {
  text::Diagnostics diagnostics;
  const int source =
      diagnostics.add_source(fmt::format("framework {}", known.name), std::string(known.text));
  auto read = std::make_shared<const Framework>(
      read_framework(known.text, source, shipped_files(), diagnostics));
  SMP_CHECK_EQ(diagnostics.text(), "");
  return read;
}

}  // namespace

const NamedFramework* find_framework(std::string_view name) {
  for (const NamedFramework& known : named_frameworks()) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::string unknown_framework(std::string_view name) {
  const std::vector<std::string> names = framework_names();
  std::string hint = ".";
  if (const auto other = text::hint_of_other_word(name, names)) {
    hint = fmt::format("; {}.", *other);
  } else if (const auto near = text::nearest(name, names)) {
    hint = fmt::format(", did you mean '{}'?", *near);
  }
  return fmt::format(
      "unknown framework '{}'{} Known frameworks: {}; or write the path of a framework file, or "
      "unknown",
      name, hint, fmt::join(names, ", "));
}

bool is_framework_path(std::string_view word) {
  return word.find('/') != std::string_view::npos || word.ends_with(".yaml") ||
         word.ends_with(".yml") || word.ends_with(".json");
}

std::shared_ptr<const Framework> shipped_framework(std::string_view name) {
  const NamedFramework* known = find_framework(name);
  if (known == nullptr) return nullptr;
  static std::recursive_mutex mutex;  // a file reads the one that it extends
  static std::map<std::string_view, std::shared_ptr<const Framework>> read;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Framework>& framework = read[known->name];
  if (!framework) framework = read_shipped(*known);
  return framework;
}

std::shared_ptr<const Framework> load_framework(const std::string& path,
                                                text::Diagnostics& diagnostics) {
  const std::string text = files::read_text_file(path, "framework file");
  const int source = diagnostics.add_source(path, text);
  return std::make_shared<const Framework>(
      read_framework(text, source, shipped_files(), diagnostics));
}

std::vector<FrameworkChoice> possible_frameworks() {
  std::vector<FrameworkChoice> possible;
  for (const NamedFramework& known : named_frameworks()) {
    std::shared_ptr<const Framework> habits = shipped_framework(known.name);
    if (habits->usual.unnamed) possible.push_back({std::string(known.name), std::move(habits)});
  }
  return possible;
}

FrameworkChoice framework_named(const std::string& name_or_path) {
  FrameworkChoice choice;
  choice.name = name_or_path;
  if (is_unknown(choice)) return choice;
  if (is_framework_path(name_or_path)) {
    text::Diagnostics diagnostics;
    choice.habits = load_framework(name_or_path, diagnostics);
    diagnostics.raise_if_any();
  } else {
    choice.habits = shipped_framework(name_or_path);
    if (!choice.habits) throw ConfigError(unknown_framework(name_or_path));
  }
  return choice;
}

const Framework& framework_without_habits(const JobSpec& job) {
  const std::string& name = job.parallel.framework.name;
  // The catalog keeps what it returns.
  if (const std::shared_ptr<const Framework> shipped = shipped_framework(name)) return *shipped;
  if (is_unknown(job.parallel.framework)) {
    throw ConfigError(
        "parallel.framework: unknown prices one layout as each framework; name a framework to ask "
        "for more than the plan of a layout");
  }
  if (!is_framework_path(name)) throw ConfigError(unknown_framework(name));
  throw ConfigError(fmt::format(
      "parallel.framework: {} is a framework file, of which a plan keeps only the path: plan the "
      "job again to price it",
      name));
}

}  // namespace smp::framework
