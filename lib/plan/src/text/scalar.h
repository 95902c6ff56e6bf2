#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/text/number_text.h"
#include "smp/plan/text/yaml_tree.h"

// The value of a scalar of a strict YAML file, for the type that its key expects. Nothing is
// guessed: 010 or 4e6 for a whole number, "12" in quotes and yes for true are refused, and the
// message says what to write instead. Pure; safe from any thread.
namespace smp::text {

// A value, or its problem: words that follow the key, as in "must be ..., not 'x'".
template <class T>
struct Read {
  std::optional<T> value;
  std::string problem;
};

// Whole numbers from `min` to `max`; `max` may need all 64 bits.
struct WholeRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  uint64_t max = std::numeric_limits<int64_t>::max();
};
// `alternative` (" or auto") names the key's other value, for the message.
Read<int64_t> read_whole(const YamlNode& node, Scale scale, WholeRange range,
                         std::string_view alternative = {});
Read<uint64_t> read_unsigned(const YamlNode& node, uint64_t max);

// Finite numbers from `min` to `max`, one or both of them excluded. With a scale, 312T and 25GB are
// numbers too.
struct NumberRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool min_excluded = false;
  bool max_excluded = false;
};
Read<double> read_number(const YamlNode& node, Scale scale, NumberRange range);

Read<bool> read_bool(const YamlNode& node, std::string_view alternative = {});

// One line of text that is not empty; quotes are allowed, and 12 or true are text here.
Read<std::string> read_text(const YamlNode& node);

// The index of one of `choices`.
Read<size_t> read_choice(const YamlNode& node, const std::vector<std::string>& choices);

bool is_auto(const YamlNode& node);

// "a, b or c"
std::string joined_or(const std::vector<std::string>& words);

// The shortest decimal text that reads back as the same number.
std::string number_text(double value);

}  // namespace smp::text
