#include "smp/plan/jobfile/forbid.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "jobfile/field_table.h"
#include "smp/plan/base/check.h"
#include "smp/plan/text/suggest.h"
#include "text/scalar.h"

namespace smp::jobfile {
namespace {

// In the order of LayoutKey.
constexpr const char* kPaths[] = {
    "parallel.pipeline_parallel_degree",
    "parallel.tensor_parallel_degree",
    "parallel.context_parallel_degree",
    "parallel.context_exchange_degree",
    "parallel.expert_parallel_degree",
    "parallel.expert_tensor_degree",
    "parallel.sharded_data_parallel_degree",
    "parallel.virtual_pipeline_degree",
    "parallel.pipeline",
    "parallel.sharding",
    "parallel.sequence_parallel",
    "parallel.placement_strategy",
    "parallel.recompute",
    "parallel.recompute_layers",
    "parallel.offload_activations",
    "parallel.offload_optimizer",
    "parallel.offload_parameters",
    "training.micro_batch",
    "training.microbatches",
    "training.precision",
};

std::string_view key_in(std::string_view path) { return path.substr(path.find('.') + 1); }

struct RelationSign {
  std::string_view text;
  Relation relation;
};
// The longer ones first: '>=' begins like '>'.
constexpr RelationSign kSigns[] = {
    {"!=", Relation::kUnequal}, {">=", Relation::kAtLeast}, {"<=", Relation::kAtMost},
    {"=", Relation::kEqual},    {">", Relation::kAbove},    {"<", Relation::kBelow},
};

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::optional<LayoutKey> key_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kPaths); ++i) {
    if (name == kPaths[i] || name == key_in(kPaths[i])) return static_cast<LayoutKey>(i);
  }
  return std::nullopt;
}

std::string unknown_key(std::string_view key) {
  for (const std::string_view path : kPaths) {
    const Field* field = find_field(path);
    const std::vector<std::string>& also = field->rule.also;
    if (std::find(also.begin(), also.end(), key) == also.end()) continue;
    return fmt::format("names the unknown key {}, did you mean '{}'?",
                       text::quoted_for_message(key), field->key);
  }
  const std::vector<std::string>& keys = forbiddable_keys();
  if (const auto near = text::nearest(std::string(key), keys)) {
    return fmt::format("names the unknown key {}, did you mean '{}'?",
                       text::quoted_for_message(key), *near);
  }
  return fmt::format("names {}, which is not a key of the layout; keys of the layout are {}",
                     text::quoted_for_message(key), fmt::join(keys, ", "));
}

// One value of the field as a number, or what is wrong with it.
text::Read<int64_t> value_of(const Field& field, std::string_view text) {
  text::YamlNode node;
  node.kind = text::YamlNode::Kind::kScalar;
  node.text = std::string(text);
  switch (shape_of(field)) {
    case Shape::kBool: {
      const text::Read<bool> read = text::read_bool(node);
      if (!read.value) return {std::nullopt, read.problem};
      return {*read.value ? 1 : 0, ""};
    }
    case Shape::kChoice: {
      const text::Read<size_t> read = text::read_choice(node, choices_of(field));
      if (!read.value) return {std::nullopt, read.problem};
      return {static_cast<int64_t>(*read.value), ""};
    }
    case Shape::kWhole: return text::read_whole(node, text::Scale::kNone, {0, uint64_t{1} << 31});
    default: check_failed(__FILE__, __LINE__, "a key that cannot be forbidden");
  }
}

// Adds one comparison; returns what is wrong with it.
std::string read_comparison(std::string_view text, std::vector<ForbiddenValue>& out) {
  const size_t at = text.find_first_of("!<>=");
  const RelationSign* sign = nullptr;
  for (const RelationSign& known : kSigns) {
    if (!sign && at != std::string_view::npos && text.substr(at).starts_with(known.text)) {
      sign = &known;
    }
  }
  if (!sign) {
    return fmt::format(
        "must be a comparison such as tensor_parallel_degree=8 or micro_batch>=4, "
        "or several joined by ' and ', not {}",
        text::quoted_for_message(text));
  }
  const std::string_view name = trimmed(text.substr(0, at));
  const std::optional<LayoutKey> key = key_named(name);
  if (!key) return unknown_key(name);
  const Field* field = find_field(kPaths[static_cast<size_t>(*key)]);
  const bool one_of = sign->relation == Relation::kEqual || sign->relation == Relation::kUnequal;
  if (!one_of && shape_of(*field) != Shape::kWhole) {
    return fmt::format("compares {}, whose values have no order: write {}=value", field->key,
                       field->key);
  }
  ForbiddenValue comparison{*key, sign->relation, {}};
  std::string_view rest = text.substr(at + sign->text.size());
  for (bool more = true; more;) {
    const size_t bar = one_of ? rest.find('|') : std::string_view::npos;
    more = bar != std::string_view::npos;
    const text::Read<int64_t> value = value_of(*field, trimmed(rest.substr(0, bar)));
    if (!value.value) return fmt::format("is wrong: {} {}", field->key, value.problem);
    comparison.values.push_back(*value.value);
    if (more) rest.remove_prefix(bar + 1);
  }
  out.push_back(std::move(comparison));
  return "";
}

}  // namespace

bool ForbiddenValue::holds(int64_t value) const {
  const bool listed = std::find(values.begin(), values.end(), value) != values.end();
  switch (relation) {
    case Relation::kEqual: return listed;
    case Relation::kUnequal: return !listed;
    case Relation::kBelow: return value < values.front();
    case Relation::kAtMost: return value <= values.front();
    case Relation::kAbove: return value > values.front();
    case Relation::kAtLeast: return value >= values.front();
  }
  check_failed(__FILE__, __LINE__, "unknown relation");
}

const std::vector<std::string>& forbiddable_keys() {
  static const std::vector<std::string> kKeys = [] {
    std::vector<std::string> keys;
    for (const std::string_view path : kPaths) keys.emplace_back(key_in(path));
    return keys;
  }();
  return kKeys;
}

ForbidReading read_forbid(std::string_view text) {
  constexpr std::string_view kAnd = " and ";
  ForbidReading reading;
  for (bool more = true; more && reading.problem.empty();) {
    const size_t end = text.find(kAnd);
    more = end != std::string_view::npos;
    reading.problem = read_comparison(text.substr(0, end), reading.comparisons);
    if (more) text.remove_prefix(end + kAnd.size());
  }
  return reading;
}

}  // namespace smp::jobfile
