#include "importers/foreign_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "smp/plan/text/suggest.h"

namespace smp::importers {
namespace {

bool matches(std::string_view pattern, std::string_view key) {
  if (!pattern.ends_with(".*")) return pattern == key;
  pattern.remove_suffix(1);  // keeps the dot
  return key.starts_with(pattern) && key.size() > pattern.size();
}

std::vector<std::string> split(std::string_view words) {
  std::vector<std::string> out;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    out.emplace_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

// JSON's "4" is no number, whatever it looks like.
std::string described_scalar(const text::YamlNode& value) {
  return (value.kind == text::YamlNode::Kind::kScalar && value.quoted ? "the text " : "") +
         text::described(value);
}

std::string range_words(const ForeignKey& row) {
  if (row.max < 1e15) return fmt::format(" from {} to {}", row.min, row.max);
  return row.min > -1e18 ? fmt::format(" of at least {}", row.min) : std::string();
}

std::string problem_with_word(const ForeignKey& row, const text::YamlNode& value) {
  const std::vector<std::string> words = split(row.words);
  if (words.empty() || std::ranges::count(words, value.text) > 0) return "";
  const auto near = text::nearest(value.text, words);
  return fmt::format("must be {}, not {}{}", listed(words), text::described(value),
                     near ? fmt::format(", did you mean '{}'?", *near) : "");
}

// PyYAML and TOML read 500_000.
std::string digits_alone(const std::string& text) {
  const bool number = !text.empty() && text.front() != '_' && text.back() != '_' &&
                      text.find_first_not_of("0123456789_") == text.npos;
  std::string out = text;
  if (number) std::erase(out, '_');
  return out;
}

// PyYAML, as YAML 1.1, takes 010 for 8; JSON has no such number.
bool is_octal(const text::YamlNode& value) {
  std::string_view text = value.text;
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return text.size() > 1 && text.find_first_not_of("01234567_") == text.npos && text[0] == '0';
}

// Any of the words that YAML and JSON writers mean by true and false.

}  // namespace

std::optional<bool> bool_value(const text::YamlNode& node) {
  if (node.quoted) return std::nullopt;
  if (node.text == "true" || node.text == "True") return true;
  if (node.text == "false" || node.text == "False") return false;
  return std::nullopt;
}

std::optional<double> number_value(std::string_view text) {
  double value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> whole_value(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  const auto number = number_value(text);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!number || *number != std::floor(*number) || std::abs(*number) > kExact) return std::nullopt;
  return static_cast<int64_t>(*number);
}

const ForeignKey* ForeignReader::row_of(std::string_view key) const {
  for (const ForeignKey& row : table_) {
    if (matches(row.key, key)) return &row;
  }
  return nullptr;
}

bool ForeignReader::is_group(std::string_view key) const {
  const std::string head = std::string(key) + ".";
  return std::ranges::any_of(table_, [&](const auto& row) { return row.key.starts_with(head); });
}

std::string ForeignReader::problem_with(const ForeignKey& row, const text::YamlNode& value) const {
  const bool scalar = value.kind == text::YamlNode::Kind::kScalar;
  const bool is_number = row.form == Form::kWhole || row.form == Form::kNumber;
  // Python's int(), which reads flags, takes 010 for 10.
  if (scalar && is_number && out_.format != ForeignFormat::kMegatron && is_octal(value)) {
    return fmt::format(
        "is {}, an octal number in YAML 1.1 and invalid in JSON: remove the leading 0", value.text);
  }
  switch (row.form) {
    case Form::kWhole: {
      const auto whole = scalar && !value.quoted ? whole_value(value.text) : std::nullopt;
      if (!whole || static_cast<double>(*whole) < row.min ||
          static_cast<double>(*whole) > row.max) {
        return fmt::format("must be a whole number{}, not {}", range_words(row),
                           described_scalar(value));
      }
      return "";
    }
    case Form::kNumber: {
      const auto number = scalar && !value.quoted ? number_value(value.text) : std::nullopt;
      if (!number || *number < row.min || *number > row.max) {
        return fmt::format("must be a number{}, not {}", range_words(row), described_scalar(value));
      }
      return "";
    }
    case Form::kBool:
      if (scalar && bool_value(value)) return "";
      return fmt::format("must be true or false, not {}", described_scalar(value));
    case Form::kText:
      if (!scalar) return fmt::format("must be a string, not {}", text::described(value));
      return problem_with_word(row, value);
    case Form::kList:
      return value.kind == text::YamlNode::Kind::kList
                 ? ""
                 : fmt::format("must be a list, not {}", text::described(value));
    case Form::kMap:
      return value.kind == text::YamlNode::Kind::kMap
                 ? ""
                 : fmt::format("must be a map, not {}", text::described(value));
    case Form::kAny: return "";
  }
  return "";
}

void ForeignReader::report_unknown(const std::string& key, text::Place place, UnknownKeys unknown) {
  std::vector<std::string> names;
  for (const ForeignKey& row : table_) {
    names.emplace_back(row.key.substr(0, row.key.find(".*")));
    if (fields_) std::ranges::replace(names.back(), '-', '_');
  }
  const auto near = text::nearest(key, names);
  const std::string hint = near ? fmt::format(", did you mean '{}'?", *near) : "";
  if (unknown == UnknownKeys::kError) {
    diagnostics_.error(place, fmt::format("unknown key {} of {}{}", text::quoted_for_message(key),
                                          title_of(out_.format), hint));
  } else {
    out_.warnings.push_back(fmt::format("{}:{}:{}: unknown key {}{}", out_.file, place.line,
                                        place.column, text::quoted_for_message(key), hint));
  }
}

void ForeignReader::add(const std::string& key, text::Place place, const text::YamlNode& value,
                        bool auto_is_absent, const std::string& shown) {
  const ForeignKey* row = row_of(key);
  if (row == nullptr) return;
  Given given{row, key, place, value, false, shown};
  const bool counts = row->form == Form::kWhole || row->form == Form::kNumber;
  if (counts && !value.quoted) given.value.text = digits_alone(value.text);
  const std::string& name = shown.empty() ? key : shown;
  const bool absent =
      value.kind == text::YamlNode::Kind::kNull ||
      (auto_is_absent && value.kind == text::YamlNode::Kind::kScalar && value.text == "auto");
  if (value.kind == text::YamlNode::Kind::kNull) nulls_.emplace_back(key, place);
  if (absent && value.kind != text::YamlNode::Kind::kNull) autos_.push_back(key);
  if (absent) return;
  if (const std::string problem = problem_with(*row, given.value); !problem.empty()) {
    diagnostics_.error(value.place, fmt::format("{} {}", name, problem));
    given.bad = true;
  } else if (row->use == Use::kRefused && (row->neutral.empty() || value.text != row->neutral)) {
    diagnostics_.error(place, reworded(fmt::format("{}: {}", name, row->meaning)));
    given.bad = true;
  } else if (row->use == Use::kIgnored) {
    out_.ignored.push_back(name);
  }
  given_.push_back(std::move(given));
}

void ForeignReader::read(const text::YamlNode& map, const std::string& prefix, UnknownKeys unknown,
                         bool auto_is_absent) {
  if (map.kind != text::YamlNode::Kind::kMap) {
    const std::string name =
        prefix.empty() ? std::string(title_of(out_.format)) : prefix.substr(0, prefix.size() - 1);
    diagnostics_.error(map.place,
                       fmt::format("{} must be a map, not {}", name, text::described(map)));
    return;
  }
  for (const text::YamlEntry& entry : map.entries) {
    const std::string key = prefix + entry.key;
    const bool group = is_group(key);
    if (row_of(key) != nullptr && !(group && entry.value.kind == text::YamlNode::Kind::kMap)) {
      add(key, entry.place, entry.value, auto_is_absent);
    } else if (group) {
      if (entry.value.kind == text::YamlNode::Kind::kNull) continue;
      read(entry.value, key + ".", unknown, auto_is_absent);
    } else {
      report_unknown(key, entry.place, unknown);
    }
  }
}

const ForeignReader::Given* ForeignReader::find(std::string_view key) const {
  for (const Given& given : given_) {
    if (given.key == key && !given.bad) return &given;
  }
  return nullptr;
}

bool ForeignReader::usable(std::string_view key) const {
  return std::ranges::none_of(given_,
                              [&](const Given& given) { return given.key == key && given.bad; });
}

bool ForeignReader::is_null(std::string_view key) const {
  return std::ranges::count(nulls_, key, &std::pair<std::string, text::Place>::first) > 0;
}

void ForeignReader::refuse_null(std::string_view key) {
  for (const auto& [null, at] : nulls_) {
    if (null != key) continue;
    diagnostics_.error(
        at, fmt::format("{} is null, which {} does not allow: give a number, or remove the key",
                        key, title_of(out_.format)));
  }
}

bool ForeignReader::is_auto(std::string_view key) const {
  return std::ranges::count(autos_, key) > 0;
}

std::vector<std::pair<std::string, std::string_view>> ForeignReader::autos() const {
  std::vector<std::pair<std::string, std::string_view>> out;
  for (const std::string& key : autos_) out.emplace_back(key, row_of(key)->target);
  return out;
}

text::Place ForeignReader::place(std::string_view key) const {
  const Given* given = find(key);
  return given != nullptr ? given->place : text::Place{0, 1, 1};
}

std::optional<int64_t> ForeignReader::whole(std::string_view key) const {
  const Given* given = find(key);
  return given != nullptr ? whole_value(given->value.text) : std::nullopt;
}

std::optional<double> ForeignReader::number(std::string_view key) const {
  const Given* given = find(key);
  return given != nullptr ? number_value(given->value.text) : std::nullopt;
}

std::optional<bool> ForeignReader::boolean(std::string_view key) const {
  const Given* given = find(key);
  return given != nullptr ? bool_value(given->value) : std::nullopt;
}

std::optional<std::string> ForeignReader::text(std::string_view key) const {
  const Given* given = find(key);
  if (given == nullptr || given->value.kind != text::YamlNode::Kind::kScalar) return std::nullopt;
  return given->value.text;
}

const text::YamlNode* ForeignReader::node(std::string_view key) const {
  const Given* given = find(key);
  return given != nullptr ? &given->value : nullptr;
}

std::string ForeignReader::shown(std::string_view key) const {
  const Given* given = find(key);
  if (given != nullptr && !given->shown.empty()) return given->shown;
  std::string name(key);
  if (fields_) std::ranges::replace(name, '-', '_');
  return name;
}

// "--num-layers (7) is ..." as "model.num_layers (7) is ..."
std::string ForeignReader::reworded(const std::string& text) const {
  if (!fields_) return text;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t flag = text.find("--", at);
    const size_t begin = std::min(flag == text.npos ? text.size() : flag + 2, text.size());
    const size_t end = std::min(
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_", begin), text.size());
    const std::string_view key = std::string_view(text).substr(begin, end - begin);
    if (flag == text.npos || row_of(key) == nullptr) {
      out += text.substr(at, end - at);
    } else {
      out += text.substr(at, flag - at) + shown(key);
    }
    at = end;
  }
  return out;
}

void ForeignReader::error(std::string_view key, std::string message) {
  error_at(place(key), message);
}

void ForeignReader::warn(std::string_view key, std::string message) {
  const text::Place at = place(key);
  out_.warnings.push_back(
      fmt::format("{}:{}:{}: {}", out_.file, at.line, at.column, reworded(message)));
}

void ForeignReader::warn_of_file(std::string message) {
  out_.warnings.push_back(fmt::format("{}: {}", out_.file, reworded(message)));
}

void ForeignReader::set(std::string path, std::string value, std::string origin) {
  out_.keys.push_back({std::move(path), std::move(value), reworded(origin)});
}

void ForeignReader::set_by(const std::string& key, std::string_view path, std::string value) {
  set(std::string(path), std::move(value), (has(key) ? "" : "no ") + key);
  out_.keys.back().assumed = !has(key);
}

void ForeignReader::set_by(const std::string& key, std::string_view path, int64_t value) {
  set_by(key, path, fmt::format("{}", value));
}

void ForeignReader::set_from(std::string_view key, std::string path, std::string value) {
  const bool is_flag = !fields_ && out_.format == ForeignFormat::kMegatron;
  std::string origin = (is_flag ? "--" : "") + shown(key);
  if (const auto stood = text(key); stood && *stood != value) origin += " = " + *stood;
  set(std::move(path), std::move(value), std::move(origin));
}

void ForeignReader::assume(std::string_view key, std::string path, std::string value) {
  out_.keys.push_back(
      {std::move(path), std::move(value), fmt::format("no {}: DeepSpeed's default", key), true});
}

void ForeignReader::assume_none(std::string path, std::string origin) {
  out_.keys.push_back({std::move(path), "none", std::move(origin), true});
}

void ForeignReader::copy_all() {
  for (const Given& given : given_) {
    if (given.bad || given.row->use != Use::kCopied) continue;
    std::string value = given.value.text;
    if (given.row->form == Form::kWhole) value = fmt::format("{}", *whole_value(value));
    if (given.row->form == Form::kBool) value = *bool_value(given.value) ? "true" : "false";
    set_from(given.key, std::string(given.row->target), value);
  }
}

}  // namespace smp::importers
