#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <type_traits>

#include "jobfile/field_table.h"
#include "jobfile/job_data_lists.h"
#include "jobfile/job_layer_list.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/model/operators.h"
#include "spec/choices.h"
#include "text/scalar.h"
#include "text/yaml_writer.h"

// Reads and writes each kind of key: the two visits of a field's target.
namespace smp::jobfile {

namespace {

text::Scale scale_of(Unit unit) {
  switch (unit) {
    case Unit::kNone:
    case Unit::kSeconds: return text::Scale::kNone;
    case Unit::kTokens:
    case Unit::kFlopsPerS: return text::Scale::kCount;
    case Unit::kBytes:
    case Unit::kBytesPerS: return text::Scale::kBytes;
  }
  return text::Scale::kNone;
}

text::WholeRange whole_range(const Rule& rule) {
  text::WholeRange range;
  range.min = static_cast<int64_t>(rule.min);
  if (std::isfinite(rule.max)) range.max = static_cast<uint64_t>(rule.max);
  return range;
}

template <class T>
std::string store(T& member, text::Read<T> read) {
  if (read.value) member = std::move(*read.value);
  return read.problem;
}

// Text that becomes the name of a file or folder.
std::string file_name_problem(const std::string& text) {
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') {
      return fmt::format("must be made of letters, digits, '.', '_' and '-', not {}",
                         text::quoted_for_message(text));
    }
  }
  return text[0] == '.' || text[0] == '-' ? "must not begin with '.' or '-'" : "";
}

// One measured collective; what is wrong with it follows "item 3".
std::string read_point(const text::YamlNode& node, LinkPoint& point) {
  if (node.kind != text::YamlNode::Kind::kMap) {
    return "must be a map such as {ranks: 8, bytes: 1MiB, seconds: 0.0001}, not " +
           text::described(node);
  }
  for (const text::YamlEntry& entry : node.entries) {
    std::string problem;
    if (entry.key == "ranks") {
      problem = store(point.ranks, text::read_whole(entry.value, text::Scale::kNone, {2, 1 << 30}));
    } else if (entry.key == "bytes") {
      problem = store(point.bytes,
                      text::read_whole(entry.value, text::Scale::kBytes, {1, uint64_t{1} << 60}));
    } else if (entry.key == "seconds") {
      text::NumberRange above_zero;
      above_zero.min = 0;
      above_zero.min_excluded = true;
      problem =
          store(point.seconds, text::read_number(entry.value, text::Scale::kNone, above_zero));
    } else if (entry.key == "op") {
      std::vector<std::string> names;
      for (const mesh::CollectiveOp op : kPointOps) names.emplace_back(name_of(op));
      const text::Read<size_t> read = text::read_choice(entry.value, names);
      if (read.value) point.op = kPointOps[*read.value];
      problem = read.problem;
    } else {
      return fmt::format("has the unknown key {}; its keys are ranks, bytes, seconds, op",
                         text::quoted_for_message(entry.key));
    }
    if (!problem.empty()) return fmt::format("has a bad key: {} {}", entry.key, problem);
  }
  for (const std::string_view key : {"ranks", "bytes", "seconds"}) {
    if (!node.find(key)) return fmt::format("needs {}", key);
  }
  return "";
}

struct Assign {
  const Rule& rule;
  const text::YamlNode& node;
  const text::YamlNode*& where;
  std::string_view or_auto;

  std::string operator()(int64_t& member) const {
    return store(member, text::read_whole(node, scale_of(rule.unit), whole_range(rule), or_auto));
  }
  std::string operator()(uint64_t& member) const {
    return store(member, text::read_unsigned(node, std::numeric_limits<uint64_t>::max()));
  }
  text::NumberRange number_range() const {
    text::NumberRange range;
    range.min = rule.min;
    if (std::isfinite(rule.max)) range.max = rule.max;
    range.min_excluded = rule.min_excluded;
    range.max_excluded = rule.max_excluded;
    return range;
  }
  std::string operator()(double& member) const {
    return store(member, text::read_number(node, scale_of(rule.unit), number_range()));
  }
  std::string operator()(bool& member) const {
    return store(member, text::read_bool(node, or_auto));
  }

  std::string operator()(std::string& member) const { return (*this)(member, node); }

  std::string operator()(std::string& member, const text::YamlNode& text) const {
    if (!rule.words.empty()) {
      const text::Read<size_t> read = text::read_choice(text, rule.words);
      if (read.value) member = rule.words[*read.value];
      return read.problem;
    }
    text::Read<std::string> read = text::read_text(text);
    if (read.value && rule.is_file_name) {
      const std::string problem = file_name_problem(*read.value);
      if (!problem.empty()) return problem;
    }
    return store(member, std::move(read));
  }

  std::string operator()(std::vector<int64_t>& member) const {
    if (node.kind != text::YamlNode::Kind::kList) {
      return fmt::format("must be a list of whole numbers such as {}{}, not {}",
                         rule.example.empty() ? "[3, 3, 2]" : rule.example, or_auto,
                         text::described(node));
    }
    std::vector<int64_t> values;
    for (const text::YamlNode& item : node.items) {
      const text::Read<int64_t> read =
          text::read_whole(item, text::Scale::kNone, whole_range(rule));
      if (!read.value) return fmt::format("item {} {}", values.size() + 1, read.problem);
      values.push_back(*read.value);
    }
    if (values.empty()) return "must not be empty; write auto to leave it open";
    member = std::move(values);
    return "";
  }

  std::string operator()(std::vector<double>& member) const {
    if (node.kind != text::YamlNode::Kind::kList || node.items.empty()) {
      return fmt::format(
          "must be a list of numbers such as {}, not {}", rule.example,
          node.kind == text::YamlNode::Kind::kList ? "an empty one" : text::described(node));
    }
    std::vector<double> values;
    for (const text::YamlNode& item : node.items) {
      const text::Read<double> read = text::read_number(item, text::Scale::kNone, number_range());
      if (!read.value) return fmt::format("item {} {}", values.size() + 1, read.problem);
      values.push_back(*read.value);
    }
    member = std::move(values);
    return "";
  }

  std::string operator()(std::vector<std::string>& member) const {
    if (node.kind != text::YamlNode::Kind::kList) {
      return fmt::format("must be a list of texts such as {}, not {}", rule.example,
                         text::described(node));
    }
    std::vector<std::string> values;
    for (const text::YamlNode& item : node.items) {
      std::string value;
      const std::string problem = (*this)(value, item);
      if (!problem.empty()) return fmt::format("item {} {}", values.size() + 1, problem);
      if (!rule.words.empty() && std::find(values.begin(), values.end(), value) != values.end())
        return fmt::format("names {} twice", value);
      values.push_back(std::move(value));
    }
    member = std::move(values);
    return "";
  }

  // Maps such as {ranks: 8, bytes: 1MiB, seconds: 0.0001}.
  std::string operator()(std::vector<LinkPoint>& member) const {
    if (node.kind != text::YamlNode::Kind::kList) {
      return "must be a list such as [{ranks: 8, bytes: 1MiB, seconds: 0.0001}], not " +
             text::described(node);
    }
    std::vector<LinkPoint> points;
    for (const text::YamlNode& item : node.items) {
      LinkPoint point;
      const std::string problem = read_point(item, point);
      if (!problem.empty()) return fmt::format("item {} {}", points.size() + 1, problem);
      points.push_back(point);
    }
    member = std::move(points);
    return "";
  }

  std::string operator()(std::vector<OperatorSpec>& member) const {
    return read_layer_list(node, member, where);
  }

  std::string operator()(std::vector<MixtureSource>& member) const {
    return read_sources(node, member);
  }
  std::string operator()(std::vector<EvaluationSet>& member) const {
    return read_sets(node, member);
  }

  template <class E>
  requires std::is_enum_v<E> std::string operator()(E& member) const {
    std::vector<std::string> names = choice_names<E>();
    if (!or_auto.empty()) names.emplace_back("auto");
    const text::Read<size_t> read = text::read_choice(node, names);
    if (read.value == Choices<E>::kNames.size()) return "must be auto without quotes";
    if (read.value) member = static_cast<E>(*read.value);
    return read.problem;
  }

  template <class T>
  std::string operator()(std::optional<T>& member) const {
    T value{};
    std::string problem = (*this)(value);
    if (problem.empty()) member = value;
    return problem;
  }
};

struct Write {
  std::optional<std::string> operator()(int64_t value) const { return std::to_string(value); }
  std::optional<std::string> operator()(uint64_t value) const { return std::to_string(value); }
  std::optional<std::string> operator()(double value) const { return text::number_text(value); }
  std::optional<std::string> operator()(bool value) const { return value ? "true" : "false"; }
  std::optional<std::string> operator()(const std::string& value) const {
    if (value.empty()) return std::nullopt;
    return text::yaml_text(value);
  }
  std::optional<std::string> operator()(const std::vector<int64_t>& values) const {
    if (values.empty()) return "auto";
    return fmt::format("[{}]", fmt::join(values, ", "));
  }
  std::optional<std::string> operator()(const std::vector<double>& values) const {
    if (values.empty()) return std::nullopt;
    std::vector<std::string> out;
    for (const double value : values) out.push_back(text::number_text(value));
    return fmt::format("[{}]", fmt::join(out, ", "));
  }
  std::optional<std::string> operator()(const std::vector<std::string>& values) const {
    std::vector<std::string> out;
    for (const std::string& value : values) out.push_back(text::yaml_text(value));
    return fmt::format("[{}]", fmt::join(out, ", "));
  }
  std::optional<std::string> operator()(const std::vector<LinkPoint>& points) const {
    if (points.empty()) return std::nullopt;
    std::vector<std::string> out;
    for (const LinkPoint& point : points) {
      const bool is_default = point.op == LinkPoint{}.op;
      out.push_back(fmt::format("{{ranks: {}, bytes: {}, seconds: {}{}{}}}", point.ranks,
                                point.bytes, text::number_text(point.seconds),
                                is_default ? "" : ", op: ", is_default ? "" : name_of(point.op)));
    }
    return fmt::format("[{}]", fmt::join(out, ", "));
  }
  std::optional<std::string> operator()(const std::vector<OperatorSpec>& operators) const {
    if (operators.empty()) return std::nullopt;
    return layer_list_text(operators);
  }
  std::optional<std::string> operator()(const std::vector<MixtureSource>& sources) const {
    return sources_text(sources);
  }
  std::optional<std::string> operator()(const std::vector<EvaluationSet>& sets) const {
    return sets_text(sets);
  }
  template <class E>
  requires std::is_enum_v<E> std::optional<std::string>
  operator()(E value) const { return std::string(choice_name(value)); }
  template <class T>
  std::optional<std::string> operator()(const std::optional<T>& value) const {
    if (!value) return "auto";
    return (*this)(*value);
  }
};

template <class T>
constexpr bool kIsOpen = false;
template <class T>
constexpr bool kIsOpen<Member<std::optional<T>>> = true;
template <>
constexpr bool kIsOpen<Member<std::vector<int64_t>>> = true;

template <class T>
struct Inner {
  using Type = T;
};
template <class T>
struct Inner<std::optional<T>> {
  using Type = T;
};
template <class T>
using InnerOf = typename Inner<T>::Type;

template <class T>
constexpr Shape kShape = Shape::kChoice;  // of an enum
template <>
constexpr Shape kShape<int64_t> = Shape::kWhole;
template <>
constexpr Shape kShape<uint64_t> = Shape::kUnsigned;
template <>
constexpr Shape kShape<double> = Shape::kNumber;
template <>
constexpr Shape kShape<bool> = Shape::kBool;
template <>
constexpr Shape kShape<std::string> = Shape::kText;
template <>
constexpr Shape kShape<std::vector<int64_t>> = Shape::kWholeList;
template <>
constexpr Shape kShape<std::vector<double>> = Shape::kNumberList;
template <>
constexpr Shape kShape<std::vector<std::string>> = Shape::kTextList;
template <>
constexpr Shape kShape<std::vector<LinkPoint>> = Shape::kPointList;
template <>
constexpr Shape kShape<std::vector<OperatorSpec>> = Shape::kLayerList;
template <>
constexpr Shape kShape<std::vector<MixtureSource>> = Shape::kSourceList;
template <>
constexpr Shape kShape<std::vector<EvaluationSet>> = Shape::kSetList;

}  // namespace

Shape shape_of(const Field& field) {
  const bool is_text = std::holds_alternative<Member<std::string>>(field.target);
  if (is_text && !field.rule.words.empty()) return Shape::kChoice;
  return std::visit([]<class T>(Member<T>) { return kShape<InnerOf<T>>; }, field.target);
}

std::vector<std::string> choices_of(const Field& field) {
  if (!field.rule.words.empty()) return field.rule.words;
  return std::visit(
      []<class T>(Member<T>) -> std::vector<std::string> {
        if constexpr (std::is_enum_v<InnerOf<T>>) return choice_names<InnerOf<T>>();
        return {};
      },
      field.target);
}

bool takes_auto(const Field& field) {
  const bool open = std::visit([](auto member) { return kIsOpen<decltype(member)>; }, field.target);
  return open || !field.rule.computed.empty();
}

std::string assign(const Field& field, JobSpec& spec, const text::YamlNode& node,
                   const text::YamlNode*& where) {
  const bool open = takes_auto(field);
  return std::visit(
      [&](auto member) -> std::string {
        if (open && text::is_auto(node)) {
          JobSpec defaults;
          member(spec) = member(defaults);
          return "";
        }
        return Assign{field.rule, node, where, open ? " or auto" : ""}(member(spec));
      },
      field.target);
}

std::optional<std::string> value_text(const Field& field, const JobSpec& spec) {
  // Members are reached through mutable references; nothing is changed here.
  return std::visit([&](auto member) { return Write{}(member(const_cast<JobSpec&>(spec))); },
                    field.target);
}

}  // namespace smp::jobfile
