#include "jobfile/field_table.h"

#include <unordered_map>

namespace smp::jobfile {

std::string joined_path(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : std::string(section) + "." + std::string(key);
}

std::string path_of(const Field& field) { return joined_path(field.section, field.key); }

const Field* find_field(std::string_view path) {
  static const std::unordered_map<std::string, const Field*> kByPath = [] {
    std::unordered_map<std::string, const Field*> out;
    for (const Field& field : job_fields()) out.emplace(path_of(field), &field);
    return out;
  }();
  const auto found = kByPath.find(std::string(path));
  return found == kByPath.end() ? nullptr : found->second;
}

const Section* find_section(std::string_view path) {
  for (const Section& section : job_sections()) {
    if (section.path == path) return &section;
  }
  return nullptr;
}

}  // namespace smp::jobfile
