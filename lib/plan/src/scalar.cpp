#include "scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "smp/plan/suggest.h"

namespace smp {

namespace {

__extension__ using Wide = __int128;       // exact products of a 64-bit number and a unit
constexpr Wide kWideMax = Wide{1} << 100;  // beyond every range; sums stop here

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

std::string wide_text(Wide value) {
  if (value < 0) return fmt::format("-{}", wide_text(-value));
  std::string out;
  do {
    out.insert(out.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value > 0);
  return out;
}

Wide value_of_digits(std::string_view digits, int base = 10) {
  Wide value = 0;
  for (const char c : digits) {
    const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
    value = std::min(kWideMax, value * base + digit);
  }
  return value;
}

struct Suffix {
  std::string_view text;
  Wide factor;
};
constexpr std::array<Suffix, 12> kSuffixes = {{{"K", 1000},
                                               {"M", 1000000},
                                               {"G", 1000000000},
                                               {"T", 1000000000000},
                                               {"P", 1000000000000000},
                                               {"E", 1000000000000000000},
                                               {"Ki", Wide{1} << 10},
                                               {"Mi", Wide{1} << 20},
                                               {"Gi", Wide{1} << 30},
                                               {"Ti", Wide{1} << 40},
                                               {"Pi", Wide{1} << 50},
                                               {"Ei", Wide{1} << 60}}};

std::vector<std::string> suffixes_of(Scale scale) {
  std::vector<std::string> out;
  if (scale == Scale::kNone) return out;
  for (const Suffix& suffix : kSuffixes) {
    out.emplace_back(suffix.text);
    if (scale == Scale::kBytes) out.push_back(std::string(suffix.text) + "B");
  }
  if (scale == Scale::kBytes) out.emplace_back("B");
  return out;
}

std::optional<Wide> factor_of(std::string_view suffix, Scale scale) {
  if (suffix.empty()) return 1;
  if (scale == Scale::kNone) return std::nullopt;
  if (scale == Scale::kBytes && suffix.ends_with('B')) {
    suffix.remove_suffix(1);
    if (suffix.empty()) return 1;
  }
  for (const Suffix& known : kSuffixes) {
    if (known.text == suffix) return known.factor;
  }
  return std::nullopt;
}

// digits [. digits] rest
struct Split {
  std::string_view whole, fraction, rest;
};
Split split_number(std::string_view text) {
  Split out;
  size_t i = 0;
  while (i < text.size() && is_digit(text[i])) ++i;
  out.whole = text.substr(0, i);
  if (i + 1 < text.size() && text[i] == '.' && is_digit(text[i + 1])) {
    const size_t begin = ++i;
    while (i < text.size() && is_digit(text[i])) ++i;
    out.fraction = text.substr(begin, i - begin);
  }
  out.rest = text.substr(i);
  return out;
}

bool has_leading_zero(std::string_view digits) { return digits.size() > 1 && digits[0] == '0'; }

// The whole number that `text` writes, exactly as the rules want it; nothing otherwise.
std::optional<Wide> strict_whole(std::string_view text, Scale scale) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const Split split = split_number(text);
  const std::optional<Wide> factor = factor_of(split.rest, scale);
  if (split.whole.empty() || has_leading_zero(split.whole) || !factor) return std::nullopt;
  if (split.fraction.size() > 18 || (!split.fraction.empty() && *factor == 1)) return std::nullopt;
  Wide value = value_of_digits(split.whole);
  Wide divisor = 1;
  for (const char c : split.fraction) {
    value = std::min(kWideMax, value * 10 + (c - '0'));
    divisor *= 10;
  }
  if (value > kWideMax / *factor) {
    value = kWideMax;
  } else {
    value *= *factor;
    if (value % divisor != 0) return std::nullopt;
    value /= divisor;
  }
  return negative ? -value : value;
}

std::string without(std::string_view text, std::string_view characters) {
  std::string out;
  for (const char c : text) {
    if (characters.find(c) == std::string_view::npos) out += c;
  }
  return out;
}

// 4e6 -> 4000000 and 4.0 -> 4, when that is a whole number.
std::optional<std::string> plain_digits(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const Split split = split_number(text);
  int exponent = 0;
  std::string_view rest = split.rest;
  if (rest.starts_with('e') || rest.starts_with('E')) {
    rest.remove_prefix(1);
    if (rest.starts_with('+')) rest.remove_prefix(1);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), exponent);
    if (error != std::errc() || end != rest.data() + rest.size()) return std::nullopt;
  } else if (rest == ".") {
    rest = {};
  } else if (!rest.empty()) {
    return std::nullopt;
  }
  if (split.whole.empty() || exponent < -18 || exponent > 18) return std::nullopt;
  std::string digits = std::string(split.whole) + std::string(split.fraction);
  int shift = exponent - static_cast<int>(split.fraction.size());
  for (; shift < 0 && digits.size() > 1 && digits.back() == '0'; ++shift) digits.pop_back();
  if (shift < 0) return std::nullopt;
  digits.append(static_cast<size_t>(shift), '0');
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  if (digits.size() > 19) return std::nullopt;
  return negative ? fmt::format("-{}", digits) : digits;
}

// What the user may have meant by a text that is no whole number: the words after "write".
std::optional<std::string> meant_whole(const std::string& text, Scale scale) {
  const auto works = [&](const std::string& candidate) {
    return strict_whole(candidate, scale).has_value();
  };
  if (has_leading_zero(text) && all_digits(text)) {
    const std::string decimal = wide_text(value_of_digits(text));
    if (text.find_first_of("89") != std::string::npos) return decimal;
    return fmt::format("{} (or {}, if octal was meant)", decimal,
                       wide_text(value_of_digits(text, 8)));
  }
  if (text.starts_with("0x") && text.size() > 2 && text.size() < 18 &&
      text.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string::npos) {
    return wide_text(value_of_digits(std::string_view(text).substr(2), 16));
  }
  if (text.starts_with("0o") && text.size() > 2 &&
      text.find_first_not_of("01234567", 2) == std::string::npos) {
    return wide_text(value_of_digits(std::string_view(text).substr(2), 8));
  }
  if (const auto digits = plain_digits(text)) {
    const bool millions = digits->size() > 6 && digits->ends_with("000000");
    if (scale == Scale::kNone || !millions) return digits;
    return *digits + " or " + digits->substr(0, digits->size() - 6) + "M";
  }
  const std::string compact = without(text, " _,+");
  if (compact != text && works(compact)) return compact;
  if (scale == Scale::kNone && works(text) == false) {
    if (const auto scaled = strict_whole(text, Scale::kCount); scaled && *scaled < kWideMax) {
      return wide_text(*scaled);
    }
  }
  // The unit in the wrong case.
  const size_t unit_begin = compact.find_first_not_of("-.0123456789");
  if (unit_begin == std::string::npos) return std::nullopt;
  const std::string number = compact.substr(0, unit_begin);
  const std::string unit = compact.substr(unit_begin);
  for (const std::string& known : suffixes_of(scale)) {
    const bool equal = std::equal(unit.begin(), unit.end(), known.begin(), known.end(),
                                  [](char a, char b) { return (a | 0x20) == (b | 0x20); });
    if (equal && works(number + known)) return number + known;
  }
  return std::nullopt;
}

// "unknown unit 'GiBs', did you mean 'GiB'?"
std::optional<std::string> unit_problem(const std::string& text, Scale scale) {
  const Split split = split_number(text.starts_with('-') ? std::string_view(text).substr(1) : text);
  if (scale == Scale::kNone || split.whole.empty() || split.rest.empty()) return std::nullopt;
  if (std::none_of(split.rest.begin(), split.rest.end(), [](char c) { return std::isalpha(c); })) {
    return std::nullopt;
  }
  if (factor_of(split.rest, scale)) return std::nullopt;
  std::string out = "has the unknown unit " + quoted_for_message(split.rest);
  if (const auto near = nearest(split.rest, suffixes_of(scale))) {
    return out + ", did you mean '" + *near + "'?";
  }
  return out + (scale == Scale::kBytes ? "; sizes are written 40GB, 40GiB or in bytes"
                                       : "; numbers are written 4000000, 4M or 4Mi");
}

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
  const Split split = split_number(node.text);
  if (!split.fraction.empty() && factor_of(split.rest, scale)) {
    return fmt::format("must be a whole number{}, not {}",
                       scale == Scale::kBytes ? " of bytes" : "", described(node));
  }
  return problem(wanted, alternative, node);
}

Read<Wide> read_wide(const YamlNode& node, Scale scale, Wide min, Wide max,
                     std::string_view alternative) {
  std::optional<Wide> value;
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

// The number that `text` writes: digits with an optional fraction and exponent or unit.
std::optional<double> strict_number(std::string_view text, Scale scale) {
  const bool negative = text.starts_with('-');
  const std::string_view body = negative ? text.substr(1) : text;
  const Split split = split_number(body);
  if (split.whole.empty() || has_leading_zero(split.whole)) return std::nullopt;
  double factor = 1;
  size_t length = text.size();
  if (!split.rest.empty()) {
    if (const auto scaled = factor_of(split.rest, scale)) {
      factor = static_cast<double>(*scaled);
      length -= split.rest.size();
    } else if (split.rest[0] != 'e' && split.rest[0] != 'E') {
      return std::nullopt;
    }
  }
  const std::string_view digits = text.substr(0, length);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                                            std::chars_format::general);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  value *= factor;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<std::string> meant_number(const std::string& text, Scale scale) {
  std::string candidate = without(text, " _,+");
  const size_t sign = candidate.starts_with('-') ? 1 : 0;
  if (candidate.size() > sign && candidate[sign] == '.') candidate.insert(sign, "0");
  if (candidate.ends_with('.')) candidate.pop_back();
  while (candidate.size() > sign + 1 && candidate[sign] == '0' && is_digit(candidate[sign + 1])) {
    candidate.erase(sign, 1);
  }
  if (candidate != text && strict_number(candidate, scale)) return candidate;
  return std::nullopt;
}

std::string number_problem(const YamlNode& node, Scale scale) {
  if (node.kind != YamlNode::Kind::kScalar) return problem("a number", "", node);
  if (node.quoted) {
    if (strict_number(node.text, scale)) return write_instead("a number", node.text, node);
    return problem("a number", "", node);
  }
  std::string word = without(node.text, "+-.");
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "inf" || word == "infinity" || word == "nan") {
    return "must be a finite number, not " + shortened(node.text);
  }
  if (const auto meant = meant_number(node.text, scale)) {
    return write_instead("a number", *meant, node);
  }
  const Split split = split_number(node.text);
  if (!split.whole.empty() && (split.rest.starts_with('e') || split.rest.starts_with('E')) &&
      split.rest.find_first_not_of("eE+-0123456789") == std::string_view::npos) {
    return "is beyond the range of a 64-bit float: " + quoted_for_message(node.text);
  }
  if (const auto unit = unit_problem(node.text, scale)) return *unit;
  return problem("a number", "", node);
}

}  // namespace

std::string number_text(double value) { return fmt::format("{}", value); }

Read<int64_t> read_whole(const YamlNode& node, Scale scale, WholeRange range,
                         std::string_view alternative) {
  const Read<Wide> wide =
      read_wide(node, scale, range.min, static_cast<Wide>(range.max), alternative);
  if (!wide.value) return {std::nullopt, wide.problem};
  return {static_cast<int64_t>(*wide.value), ""};
}

Read<uint64_t> read_unsigned(const YamlNode& node, uint64_t max) {
  const Read<Wide> wide = read_wide(node, Scale::kNone, 0, static_cast<Wide>(max), {});
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
    std::string word = node.text;
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
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
  if (const auto near = nearest(node.text, choices)) out += "; did you mean '" + *near + "'?";
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

}  // namespace smp
