#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/text/diagnostics.h"

// The strict subset of YAML of job and plan files: one document of maps, lists and scalars in
// UTF-8. Duplicate keys, anchors, aliases, merge keys, tags, complex keys, tabs in the indentation,
// unclosed quotes and values over several lines are errors with a place. Scalars stay text: the
// reader of a key converts them (scalar.h). Not thread-safe per Diagnostics.
namespace smp::text {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  Place place;
  bool quoted = false;    // a scalar in quotes or a block scalar
  bool reported = false;  // something about it is wrong and reported: say no more about its value
  std::string text;       // of a scalar
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;  // in the order of the file; keys differ

  const YamlEntry* find(std::string_view key) const;
};

struct YamlEntry {
  std::string key;
  Place place;  // of the key
  YamlNode value;
};

struct YamlTree {
  YamlNode root;
  bool complete = false;  // false after a syntax error: what stands before it is in the tree
};

struct YamlLimits {
  size_t bytes = 1 << 20;
  int depth = 16;
};

// Parses source `source` of `diagnostics`, whose text is `text`. Mistakes go to `diagnostics`.
YamlTree parse_yaml(std::string_view text, int source, Diagnostics& diagnostics,
                    YamlLimits limits = {});

// 'text' for messages: one line, long ones cut.
std::string quoted_for_message(std::string_view text);

// "a list", "a map", "nothing", or the scalar in quotes, for messages.
std::string described(const YamlNode& node);

}  // namespace smp::text
