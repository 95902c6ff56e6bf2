#include "smp/plan/jobfile/key_places.h"

#include "smp/plan/text/yaml_tree.h"

namespace smp::jobfile {
namespace {

void collect(const text::YamlNode& node, const std::string& section,
             std::map<std::string, KeyPlace, std::less<>>& places) {
  for (const text::YamlEntry& entry : node.entries) {
    const std::string path = section.empty() ? entry.key : section + "." + entry.key;
    places[path] = {entry.place.line, entry.place.column};
    collect(entry.value, path, places);
  }
}

}  // namespace

KeyPlaces::KeyPlaces(const JobSource& source) {
  text::Diagnostics ignored;
  const int number = ignored.add_source(source.path, source.text);
  const text::YamlTree tree =
      text::parse_yaml(source.text, number, ignored, {.bytes = source.text.size() + 1});
  const text::YamlEntry* job = tree.root.find("smp_plan") ? tree.root.find("job") : nullptr;
  collect(job != nullptr ? job->value : tree.root, "", places_);
}

KeyPlace KeyPlaces::of(std::string_view path) const {
  for (;;) {
    const auto found = places_.find(path);
    if (found != places_.end()) return found->second;
    const size_t dot = path.rfind('.');
    if (dot == std::string_view::npos) return {};
    path = path.substr(0, dot);
  }
}

}  // namespace smp::jobfile
