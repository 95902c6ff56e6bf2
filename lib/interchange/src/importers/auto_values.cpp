#include "importers/auto_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/jobfile/job_format.h"

namespace smp::importers {
namespace {

// The default of a key of a job: "auto", or a value.
std::string default_at(std::string_view path) {
  static const std::string kText = jobfile::write_job_yaml({});
  text::Diagnostics quiet;
  const text::YamlTree tree = text::parse_yaml(kText, quiet.add_source("", kText), quiet);
  const text::YamlNode* node = &tree.root;
  while (node != nullptr && !path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    const text::YamlEntry* entry =
        node->kind == text::YamlNode::Kind::kMap ? node->find(path.substr(0, end)) : nullptr;
    node = entry != nullptr ? &entry->value : nullptr;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return node != nullptr && node->kind == text::YamlNode::Kind::kScalar ? node->text : "auto";
}

}  // namespace

void say_autos(ForeignReader& reader, Imported& out) {
  std::string planned, taken;
  std::vector<std::string_view> said;
  for (const auto& [key, targets] : reader.autos()) {
    for (std::string_view rest = targets; !rest.empty();) {
      const size_t end = std::min(rest.find(", "), rest.size());
      const std::string_view path = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 2, rest.size()));
      if (out.find(path) != nullptr || std::ranges::count(said, path) > 0) continue;
      said.push_back(path);
      const std::string value = default_at(path);
      if (value == "auto") out.open.emplace_back(path);
      std::string& list = value == "auto" ? planned : taken;
      if (!list.empty()) list += ", ";
      list += value == "auto" ? fmt::format("{} ({})", path, key)
                              : fmt::format("{} = {} ({})", path, value, key);
    }
  }
  if (!taken.empty()) {
    reader.warn_of_file(
        "\"auto\" values are left to a script; unless another file gives them, the job file's "
        "defaults apply: " +
        taken);
  }
  if (!planned.empty()) {
    reader.warn_of_file(
        "\"auto\" values are left to a script; unless another file gives them, the planner "
        "chooses: " +
        planned);
  }
}

}  // namespace smp::importers
