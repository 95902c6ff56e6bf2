#include "jobfile/key_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "jobfile/field_table.h"
#include "smp/plan/text/suggest.h"

namespace smp::jobfile {

std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> out;
  for (const Field& field : job_fields()) {
    if (field.section == section) out.emplace_back(field.key);
  }
  for (const Section& part : job_sections()) {
    if (part.path.empty() || part.path == section) continue;
    const std::string prefix = joined_path(section, "");
    if (!part.path.starts_with(prefix)) continue;
    const std::string_view rest = part.path.substr(prefix.size());
    if (rest.find('.') == std::string_view::npos) out.emplace_back(rest);
  }
  return out;
}

std::string comma_list(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string where(std::string_view section) {
  return section.empty() ? "at the top level" : fmt::format("in {}", section);
}

namespace {

std::optional<KeyHint> exact_hint(std::string_view section, const std::string& key) {
  for (const Field& field : job_fields()) {
    const bool here = field.section == section;
    if (path_of(field) == key && !field.section.empty()) {
      return KeyHint{fmt::format("; write '{}' {}", field.key, where(field.section)), ""};
    }
    if (!here && field.key == key && key != "name") {
      return KeyHint{fmt::format("; it belongs {}", where(field.section)), ""};
    }
    if (std::find(field.rule.also.begin(), field.rule.also.end(), key) == field.rule.also.end()) {
      continue;
    }
    if (here) return KeyHint{fmt::format(", did you mean '{}'?", field.key), path_of(field)};
    return KeyHint{fmt::format(", did you mean '{}' {}?", field.key, where(field.section)), ""};
  }
  for (const Section& other : job_sections()) {
    const size_t dot = other.path.rfind('.');
    if (other.path.empty() || other.path.substr(dot + 1) != key) continue;
    const std::string_view parent = dot == std::string_view::npos ? "" : other.path.substr(0, dot);
    return KeyHint{fmt::format("; that section belongs {}", where(parent)), ""};
  }
  return std::nullopt;
}

}  // namespace

KeyHint key_hint(std::string_view section, const std::string& key) {
  if (auto hint = exact_hint(section, key)) return *hint;
  const std::vector<std::string> keys = keys_of(section);
  if (const auto near = text::nearest(key, keys)) {
    return {fmt::format(", did you mean '{}'?", *near), joined_path(section, *near)};
  }
  std::vector<std::string> others;
  for (const Field& field : job_fields()) {
    // Words that are near to many others say little outside of their section.
    if (field.section != section && field.key.size() > 4) others.emplace_back(field.key);
  }
  if (const auto near = text::nearest(key, others)) {
    for (const Field& field : job_fields()) {
      if (field.section == section || field.key != *near) continue;
      return {fmt::format(", did you mean '{}' {}?", *near, where(field.section)), ""};
    }
  }
  return {fmt::format("; known keys are {}", comma_list(keys)), ""};
}

}  // namespace smp::jobfile
