#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/yaml_tree.h"
#include "text/scalar.h"

// Reads one map of a YAML file strictly, such as a plan or a framework file: each read names its
// key, and finish() refuses the keys that nobody asked for. Mistakes go to the Diagnostics, and the
// read gives a harmless value, so that one pass finds them all. The node must outlive the map.
namespace smp::text {

class StrictMap {
 public:
  // `name` is how messages call the map. A node that is no map is reported, once.
  StrictMap(const YamlNode& node, std::string name, Diagnostics& diagnostics);

  bool has(std::string_view key);           // finish() then knows the key
  Place place(std::string_view key) const;  // of the key, or of the map where it is missing
  void error(std::string_view key, std::string message);  // at the key's place

  int64_t integer(std::string_view key, int64_t min = 0,
                  int64_t max = std::numeric_limits<int64_t>::max());
  double number(std::string_view key, Scale scale, NumberRange range);
  bool boolean(std::string_view key);
  std::string text(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  size_t choice(std::string_view key, const std::vector<std::string>& names);
  std::vector<size_t> choices(std::string_view key, const std::vector<std::string>& names);

  // The value as it stands; nullptr, and a report, where it is missing.
  const YamlNode* node(std::string_view key);
  StrictMap map(std::string_view key);                // of a missing one, every read is silent
  std::vector<StrictMap> maps(std::string_view key);  // a list of maps

  void finish();  // unknown keys

 private:
  StrictMap(std::string name, Diagnostics& diagnostics);
  const YamlNode* list(std::string_view key);

  const YamlNode* node_ = nullptr;  // nullptr: silent
  std::string name_;
  Diagnostics* diagnostics_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace smp::text
