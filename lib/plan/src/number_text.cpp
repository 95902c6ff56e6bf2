#include "smp/plan/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "smp/plan/suggest.h"
#include "smp/plan/yaml_tree.h"

namespace smp {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

Int128 value_of_digits(std::string_view digits, int base = 10) {
  Int128 value = 0;
  for (const char c : digits) {
    const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
    value = std::min(kWideMax, value * base + digit);
  }
  return value;
}

struct Suffix {
  std::string_view text;
  Int128 factor;
};
constexpr std::array<Suffix, 12> kSuffixes = {{{"K", 1000},
                                               {"M", 1000000},
                                               {"G", 1000000000},
                                               {"T", 1000000000000},
                                               {"P", 1000000000000000},
                                               {"E", 1000000000000000000},
                                               {"Ki", Int128{1} << 10},
                                               {"Mi", Int128{1} << 20},
                                               {"Gi", Int128{1} << 30},
                                               {"Ti", Int128{1} << 40},
                                               {"Pi", Int128{1} << 50},
                                               {"Ei", Int128{1} << 60}}};

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

std::optional<Int128> factor_of(std::string_view suffix, Scale scale) {
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

}  // namespace

std::string wide_text(Int128 value) {
  if (value < 0) return fmt::format("-{}", wide_text(-value));
  std::string out;
  do {
    out.insert(out.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value > 0);
  return out;
}

std::optional<Int128> strict_whole(std::string_view text, Scale scale) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const Split split = split_number(text);
  const std::optional<Int128> factor = factor_of(split.rest, scale);
  if (split.whole.empty() || has_leading_zero(split.whole) || !factor) return std::nullopt;
  if (split.fraction.size() > 18 || (!split.fraction.empty() && *factor == 1)) return std::nullopt;
  Int128 value = value_of_digits(split.whole);
  Int128 divisor = 1;
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
  if (candidate.size() > sign && candidate[sign] == '.') candidate.insert(sign, 1, '0');
  if (candidate.ends_with('.')) candidate.pop_back();
  while (candidate.size() > sign + 1 && candidate[sign] == '0' && is_digit(candidate[sign + 1])) {
    candidate.erase(sign, 1);
  }
  if (candidate != text && strict_number(candidate, scale)) return candidate;
  return std::nullopt;
}

std::optional<std::string> unit_problem(const std::string& text, Scale scale) {
  const Split split = split_number(text.starts_with('-') ? std::string_view(text).substr(1) : text);
  if (scale == Scale::kNone || split.whole.empty() || split.rest.empty()) return std::nullopt;
  if (std::none_of(split.rest.begin(), split.rest.end(), [](char c) { return std::isalpha(c); })) {
    return std::nullopt;
  }
  if (factor_of(split.rest, scale)) return std::nullopt;
  std::string unit(split.rest);
  unit.erase(0, unit.find_first_not_of(' '));
  std::string out = "has the unknown unit " + quoted_for_message(unit);
  if (const auto near = nearest(unit, suffixes_of(scale))) {
    return out + ", did you mean '" + *near + "'?";
  }
  return out + (scale == Scale::kBytes ? "; units are GB (10^9), GiB (2^30) and the like"
                                       : "; units are M (10^6), Mi (2^20) and the like");
}

bool has_fraction(std::string_view text, Scale scale) {
  const Split split = split_number(text);
  return !split.fraction.empty() && factor_of(split.rest, scale);
}

bool has_exponent(std::string_view text) {
  const Split split = split_number(text.substr(text.starts_with('-') ? 1 : 0));
  return !split.whole.empty() && (split.rest.starts_with('e') || split.rest.starts_with('E')) &&
         split.rest.find_first_not_of("eE+-0123456789") == std::string_view::npos;
}

}  // namespace smp
