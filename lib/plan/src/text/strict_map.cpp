#include "text/strict_map.h"

#include <fmt/format.h>

#include "smp/plan/text/suggest.h"

namespace smp::text {

namespace {

// The value, or a report and a default one.
template <class T>
T value_or_report(Read<T> read, const std::string& name, const YamlNode& node,
                  Diagnostics& diagnostics) {
  if (read.value) return std::move(*read.value);
  diagnostics.error(node.place, name + " " + read.problem);
  return T{};
}

}  // namespace

StrictMap::StrictMap(const YamlNode& node, std::string name, Diagnostics& diagnostics)
    : name_(std::move(name)), diagnostics_(&diagnostics) {
  if (node.kind == YamlNode::Kind::kMap) {
    node_ = &node;
  } else {
    diagnostics.error(node.place, fmt::format("{} must be a map, not {}", name_, described(node)));
  }
}

StrictMap::StrictMap(std::string name, Diagnostics& diagnostics)
    : name_(std::move(name)), diagnostics_(&diagnostics) {}

bool StrictMap::has(std::string_view key) {
  if (!node_) return false;
  asked_.emplace(key);
  return node_->find(key) != nullptr;
}

Place StrictMap::place(std::string_view key) const {
  if (!node_) return {};
  const YamlEntry* entry = node_->find(key);
  return entry ? entry->place : node_->place;
}

void StrictMap::error(std::string_view key, std::string message) {
  if (node_) diagnostics_->error(place(key), std::move(message));
}

const YamlNode* StrictMap::node(std::string_view key) {
  if (!node_) return nullptr;
  asked_.emplace(key);
  const YamlEntry* entry = node_->find(key);
  if (entry) return entry->value.reported ? nullptr : &entry->value;
  diagnostics_->error(node_->place, fmt::format("{} needs '{}'", name_, key));
  return nullptr;
}

int64_t StrictMap::integer(std::string_view key, int64_t min, int64_t max) {
  const YamlNode* value = node(key);
  if (!value) return 0;
  return value_or_report(read_whole(*value, Scale::kNone, {min, static_cast<uint64_t>(max)}),
                         std::string(key), *value, *diagnostics_);
}

double StrictMap::number(std::string_view key, Scale scale, NumberRange range) {
  const YamlNode* value = node(key);
  if (!value) return 0;
  return value_or_report(read_number(*value, scale, range), std::string(key), *value,
                         *diagnostics_);
}

bool StrictMap::boolean(std::string_view key) {
  const YamlNode* value = node(key);
  if (!value) return false;
  return value_or_report(read_bool(*value), std::string(key), *value, *diagnostics_);
}

std::string StrictMap::text(std::string_view key) {
  const YamlNode* value = node(key);
  if (!value) return "";
  return value_or_report(read_text(*value), std::string(key), *value, *diagnostics_);
}

size_t StrictMap::choice(std::string_view key, const std::vector<std::string>& names) {
  const YamlNode* value = node(key);
  if (!value) return 0;
  return value_or_report(read_choice(*value, names), std::string(key), *value, *diagnostics_);
}

const YamlNode* StrictMap::list(std::string_view key) {
  const YamlNode* value = node(key);
  if (!value || value->kind == YamlNode::Kind::kList) return value;
  diagnostics_->error(value->place,
                      fmt::format("{} must be a list, not {}", key, described(*value)));
  return nullptr;
}

std::vector<std::string> StrictMap::texts(std::string_view key) {
  std::vector<std::string> out;
  const YamlNode* value = list(key);
  if (!value) return out;
  for (const YamlNode& item : value->items) {
    out.push_back(value_or_report(
        read_text(item), fmt::format("item {} of {}", out.size() + 1, key), item, *diagnostics_));
  }
  return out;
}

std::vector<size_t> StrictMap::choices(std::string_view key,
                                       const std::vector<std::string>& names) {
  std::vector<size_t> out;
  const YamlNode* value = list(key);
  if (!value) return out;
  for (const YamlNode& item : value->items) {
    out.push_back(value_or_report(read_choice(item, names),
                                  fmt::format("item {} of {}", out.size() + 1, key), item,
                                  *diagnostics_));
  }
  return out;
}

StrictMap StrictMap::map(std::string_view key) {
  const YamlNode* value = node(key);
  if (!value) return StrictMap(std::string(key), *diagnostics_);
  return StrictMap(*value, std::string(key), *diagnostics_);
}

std::vector<StrictMap> StrictMap::maps(std::string_view key) {
  std::vector<StrictMap> out;
  const YamlNode* value = list(key);
  if (!value) return out;
  for (const YamlNode& item : value->items) {
    out.emplace_back(item, fmt::format("item {} of {}", out.size() + 1, key), *diagnostics_);
  }
  return out;
}

void StrictMap::finish() {
  if (!node_) return;
  const std::vector<std::string> known(asked_.begin(), asked_.end());
  for (const YamlEntry& entry : node_->entries) {
    if (asked_.contains(entry.key)) continue;
    const auto near = nearest(entry.key, known);
    diagnostics_->error(entry.place,
                        fmt::format("unknown key {} in {}{}", quoted_for_message(entry.key), name_,
                                    near ? ", did you mean '" + *near + "'?" : ""));
  }
}

}  // namespace smp::text
