#include "text/scalar.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/text/lower_case.h"
#include "smp/plan/text/suggest.h"
#include "text/other_words.h"

namespace smp::text {

namespace {

std::string shortened(std::string_view text) {
  const std::string quoted = quoted_for_message(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::string wanted_whole(Scale scale) {
  switch (scale) {
    case Scale::kNone: return "a whole number";
    case Scale::kCount: return "a whole number such as 4194304, 4M or 4Mi";
    case Scale::kBytes: return "a size such as 40GiB, 40GB or a number of bytes";
  }
  return "";
}

std::string problem(std::string_view wanted, std::string_view alternative, const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kNull) return "needs a value";
  if (node.kind == YamlNode::Kind::kScalar && node.quoted) {
    return fmt::format("must be {}{}, not the text {}", wanted, alternative, described(node));
  }
  return fmt::format("must be {}{}, not {}", wanted, alternative, described(node));
}

std::string write_instead(std::string_view wanted, std::string_view instead, const YamlNode& node) {
  const std::string written = node.quoted ? fmt::format("\"{}\"", node.text) : node.text;
  return fmt::format("must be {}: write {}, not {}", wanted, shortened(instead),
                     shortened(written));
}

std::string whole_problem(const YamlNode& node, Scale scale, std::string_view alternative) {
  const std::string wanted = wanted_whole(scale);
  if (node.kind != YamlNode::Kind::kScalar) return problem(wanted, alternative, node);
  const std::string brief = scale == Scale::kBytes ? "a size" : "a whole number";
  if (node.quoted) {
    if (strict_whole(node.text, scale)) return write_instead(brief, node.text, node);
    return problem(wanted, alternative, node);
  }
  if (const auto meant = meant_whole(node.text, scale)) return write_instead(brief, *meant, node);
  if (const auto unit = unit_problem(node.text, scale)) return *unit;
  if (has_fraction(node.text, scale)) {
    return fmt::format("must be a whole number{}, not {}",
                       scale == Scale::kBytes ? " of bytes" : "", described(node));
  }
  return problem(wanted, alternative, node);
}

Read<Int128> read_wide(const YamlNode& node, Scale scale, Int128 min, Int128 max,
                       std::string_view alternative) {
  std::optional<Int128> value;
  if (node.kind == YamlNode::Kind::kScalar && !node.quoted) value = strict_whole(node.text, scale);
  if (!value) return {std::nullopt, whole_problem(node, scale, alternative)};
  if (*value < min) {
    return {std::nullopt,
            fmt::format("must be at least {}, not {}", wide_text(min), shortened(node.text))};
  }
  if (*value > max) {
    return {std::nullopt,
            fmt::format("must be at most {}, not {}", wide_text(max), shortened(node.text))};
  }
  return {*value, ""};
}

std::string number_problem(const YamlNode& node, Scale scale) {
  if (node.kind != YamlNode::Kind::kScalar) return problem("a number", "", node);
  if (node.quoted) {
    if (strict_number(node.text, scale)) return write_instead("a number", node.text, node);
    return problem("a number", "", node);
  }
  std::string word = node.text;
  std::erase_if(word, [](char c) { return c == '+' || c == '-' || c == '.'; });
  word = lower_case(word);
  if (word == "inf" || word == "infinity" || word == "nan") {
    return "must be a finite number, not " + shortened(node.text);
  }
  if (const auto meant = meant_number(node.text, scale)) {
    return write_instead("a number", *meant, node);
  }
  if (has_exponent(node.text)) {
    return "is beyond the range of a 64-bit float: " + quoted_for_message(node.text);
  }
  if (const auto unit = unit_problem(node.text, scale)) return *unit;
  return problem("a number", "", node);
}

}  // namespace

std::string number_text(double value) { return fmt::format("{}", value); }

Read<int64_t> read_whole(const YamlNode& node, Scale scale, WholeRange range,
                         std::string_view alternative) {
  const Read<Int128> wide =
      read_wide(node, scale, range.min, static_cast<Int128>(range.max), alternative);
  if (!wide.value) return {std::nullopt, wide.problem};
  return {static_cast<int64_t>(*wide.value), ""};
}

Read<uint64_t> read_unsigned(const YamlNode& node, uint64_t max) {
  const Read<Int128> wide = read_wide(node, Scale::kNone, 0, static_cast<Int128>(max), {});
  if (!wide.value) return {std::nullopt, wide.problem};
  return {static_cast<uint64_t>(*wide.value), ""};
}

Read<double> read_number(const YamlNode& node, Scale scale, NumberRange range) {
  std::optional<double> value;
  if (node.kind == YamlNode::Kind::kScalar && !node.quoted) value = strict_number(node.text, scale);
  if (!value) return {std::nullopt, number_problem(node, scale)};
  const auto outside = [&](std::string_view relation, double bound) -> Read<double> {
    return {std::nullopt, fmt::format("must be {} {}, not {}", relation, number_text(bound),
                                      shortened(node.text))};
  };
  if (range.min_excluded ? *value <= range.min : *value < range.min) {
    return outside(range.min_excluded ? "above" : "at least", range.min);
  }
  if (range.max_excluded ? *value >= range.max : *value > range.max) {
    return outside(range.max_excluded ? "below" : "at most", range.max);
  }
  return {*value == 0 ? 0.0 : *value, ""};  // -0 is 0
}

Read<bool> read_bool(const YamlNode& node, std::string_view alternative) {
  if (node.kind == YamlNode::Kind::kScalar) {
    if (!node.quoted && node.text == "true") return {true, ""};
    if (!node.quoted && node.text == "false") return {false, ""};
    const std::string word = lower_case(node.text);
    const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (is_one_of({"true", "yes", "on", "y", "1"})) {
      return {std::nullopt, write_instead("true or false", "true", node)};
    }
    if (is_one_of({"false", "no", "off", "n", "0"})) {
      return {std::nullopt, write_instead("true or false", "false", node)};
    }
  }
  return {std::nullopt, alternative.empty() ? problem("true or false", "", node)
                                            : problem("true, false or auto", "", node)};
}

Read<std::string> read_text(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return {std::nullopt, problem("text", "", node)};
  if (node.text.empty()) return {std::nullopt, "must not be empty"};
  for (const char c : node.text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      return {std::nullopt, "must be one line without control characters"};
    }
  }
  return {node.text, ""};
}

Read<size_t> read_choice(const YamlNode& node, const std::vector<std::string>& choices) {
  const std::string wanted = joined_or(choices);
  if (node.kind != YamlNode::Kind::kScalar) return {std::nullopt, problem(wanted, "", node)};
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == node.text) return {i, ""};
  }
  std::string out = "must be " + wanted + ", not " + described(node);
  if (const auto hint = hint_of_other_word(node.text, choices)) {
    out += "; " + *hint;
  } else if (const auto near = nearest(node.text, choices)) {
    out += "; did you mean '" + *near + "'?";
  }
  return {std::nullopt, out};
}

bool is_auto(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && !node.quoted && node.text == "auto";
}

std::string joined_or(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

}  // namespace smp::text
