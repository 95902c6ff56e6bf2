#include "job_builder.h"

#include <fmt/format.h>

#include "smp/plan/suggest.h"

namespace smp {

namespace {

std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> out;
  for (const Field& field : job_fields()) {
    if (field.section == section) out.emplace_back(field.key);
  }
  for (const Section& part : job_sections()) {
    if (part.path.empty() || part.path == section) continue;
    const std::string prefix = joined_path(section, "");
    if (!part.path.starts_with(prefix)) continue;
    const std::string_view rest = part.path.substr(prefix.size());
    if (rest.find('.') == std::string_view::npos) out.emplace_back(rest);
  }
  return out;
}

std::string comma_list(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string where(std::string_view section) {
  return section.empty() ? "at the top level" : fmt::format("in {}", section);
}

// A key of another section: the same word, else the nearest one.
struct Elsewhere {
  std::string section;
  std::string key;
  bool same = false;
};
std::optional<Elsewhere> find_elsewhere(std::string_view section, const std::string& key) {
  std::vector<std::string> others;
  for (const Field& field : job_fields()) {
    if (field.section == section) continue;
    if (field.key == key && field.key != "name")
      return Elsewhere{std::string(field.section), key, true};
    others.emplace_back(field.key);
  }
  const auto near = nearest(key, others);
  if (!near || *near == "name" || *near == "path") return std::nullopt;
  for (const Field& field : job_fields()) {
    if (field.section != section && field.key == *near) {
      return Elsewhere{std::string(field.section), *near, false};
    }
  }
  return std::nullopt;
}

YamlNode scalar_node(std::string text, Place place) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = std::move(text);
  node.place = place;
  return node;
}

bool takes_list(const Field& field) {
  return std::holds_alternative<Member<std::vector<int64_t>>>(field.target) ||
         std::holds_alternative<Member<std::vector<std::string>>>(field.target);
}

}  // namespace

void JobBuilder::add(const YamlNode& node, bool complete) {
  complete_ = complete_ && complete;
  if (node.kind == YamlNode::Kind::kMap) {
    read_section(node, "");
  } else if (complete && node.kind == YamlNode::Kind::kNull) {
    diagnostics_.error({node.place.source, 1, 1},
                       "the file is empty; it needs sections such as model and cluster");
  } else if (complete) {
    diagnostics_.error(node.place, fmt::format("a job file is a map of sections (model, cluster, "
                                               "training, parallel), not {}",
                                               described(node)));
  }
}

void JobBuilder::read_section(const YamlNode& node, std::string_view section) {
  for (const YamlEntry& entry : node.entries) {
    const std::string path = joined_path(section, entry.key);
    if (const Field* field = find_field(path); field && field->key == entry.key) {
      entries_[path].place = entry.place;
      read_value(*field, entry.value, entry.key);
    } else if (find_section(path) && entry.key.find('.') == std::string::npos) {
      sections_[path] = entry.place;
      if (entry.value.kind == YamlNode::Kind::kMap) {
        read_section(entry.value, path);
      } else if (entry.value.kind != YamlNode::Kind::kNull) {  // all its keys commented out
        diagnostics_.error(entry.value.place,
                           fmt::format("{} must be a map of keys such as '{}: ...', not {}",
                                       entry.key, keys_of(path).front(), described(entry.value)));
      }
    } else {
      report_unknown(std::string(section), entry.key, entry.place, entry.key);
    }
  }
}

void JobBuilder::read_value(const Field& field, const YamlNode& node,
                            const std::string& shown_name) {
  Entry& entry = entries_[path_of(field)];
  const std::string problem = assign(field, spec_, node);
  if (problem.empty()) {
    entry.state = takes_auto(field) && node.kind == YamlNode::Kind::kScalar && node.text == "auto"
                      ? State::kAbsent
                      : State::kGiven;
    return;
  }
  entry.state = State::kBad;
  diagnostics_.error(node.place, shown_name + " " + problem);
}

void JobBuilder::report_unknown(const std::string& section, const std::string& key, Place place,
                                const std::string& shown_path) {
  const std::string what =
      fmt::format("unknown key {} {}", quoted_for_message(shown_path), where(section));
  const std::vector<std::string> keys = keys_of(section);
  const auto elsewhere = find_elsewhere(section, key);
  if (elsewhere && elsewhere->same) {
    diagnostics_.error(place, fmt::format("{}; it belongs {}", what, where(elsewhere->section)));
  } else if (const auto near = nearest(key, keys)) {
    diagnostics_.error(place, fmt::format("{}, did you mean '{}'?", what, *near));
  } else if (elsewhere) {
    diagnostics_.error(place, fmt::format("{}, did you mean '{}' {}?", what, elsewhere->key,
                                          where(elsewhere->section)));
  } else {
    diagnostics_.error(place, fmt::format("{}; it has {}", what, comma_list(keys)));
  }
}

void JobBuilder::add_override(const std::string& text) {
  const int source = diagnostics_.add_source("--set", text, /*has_line_numbers=*/false);
  const size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  const Place key_place{source, 1, 1};
  if (equals == std::string::npos || path.empty()) {
    diagnostics_.error(key_place,
                       "write section.key=value, e.g. parallel.tensor_parallel_degree=2");
    return;
  }
  const Field* field = find_field(path);
  if (!field) {
    if (const Section* section = find_section(path); section && !path.empty()) {
      diagnostics_.error(key_place, fmt::format("'{}' is a section; set one of its keys: {}", path,
                                                comma_list(keys_of(path))));
      return;
    }
    const size_t dot = path.rfind('.');
    const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
    if (find_section(section)) {
      const std::string key = dot == std::string::npos ? path : path.substr(dot + 1);
      report_unknown(section, key, {source, 1, static_cast<int>(dot + 2)}, key);
      return;
    }
    std::vector<std::string> paths;
    for (const Field& known : job_fields()) paths.push_back(path_of(known));
    const auto near = nearest(path, paths);
    diagnostics_.error(
        key_place, fmt::format("unknown section {}{}", quoted_for_message(section),
                               near ? ", did you mean '" + *near + "'?"
                                    : "; there are model, cluster, training, training.optimizer, "
                                      "training.data and parallel"));
    return;
  }

  const Place value_place{source, 1, static_cast<int>(equals) + 2};
  const std::string value = text.substr(equals + 1);
  entries_[path].place = key_place;
  if (value.empty()) {
    entries_[path].state = State::kBad;
    diagnostics_.error(value_place, path + " needs a value");
  } else if (takes_list(*field) && value.starts_with('[')) {
    Diagnostics inner;
    const YamlTree tree = parse_yaml(value, inner.add_source("", value), inner);
    if (inner.any()) {
      entries_[path].state = State::kBad;
      diagnostics_.error(value_place, path + " is not a list that can be read");
      return;
    }
    YamlNode node = tree.root;
    node.place = value_place;
    read_value(*field, node, path);
  } else {
    read_value(*field, scalar_node(value, value_place), path);
  }
}

Place JobBuilder::section_place(std::string_view section) const {
  const auto found = sections_.find(section);
  return found == sections_.end() ? Place{0, 1, 1} : found->second;
}

void JobBuilder::require(const Field& field) {
  Entry& entry = entries_[path_of(field)];
  if (entry.state != State::kAbsent) return;
  entry.state = State::kBad;
  diagnostics_.error(section_place(field.section),
                     fmt::format("{} needs '{}' ({})", field.section, field.key, field.doc));
}

bool JobBuilder::given(std::string_view path) const {
  const auto found = entries_.find(path);
  return found != entries_.end() && found->second.state == State::kGiven;
}

bool JobBuilder::usable(std::initializer_list<std::string_view> paths) const {
  for (const std::string_view path : paths) {
    const auto found = entries_.find(path);
    if (found != entries_.end() && found->second.state == State::kBad) return false;
  }
  return true;
}

Place JobBuilder::place_of(std::initializer_list<std::string_view> paths) const {
  for (const std::string_view path : paths) {
    const auto found = entries_.find(path);
    if (found != entries_.end() && found->second.state == State::kGiven) return found->second.place;
  }
  return section_place("model");
}

void JobBuilder::error(std::initializer_list<std::string_view> paths, std::string message) {
  diagnostics_.error(place_of(paths), std::move(message));
}

JobSpec JobBuilder::finish(const std::string& fallback_name) {
  if (spec_.name.empty()) spec_.name = fallback_name;
  if (!complete_) return spec_;  // what is missing may stand behind the syntax error
  if (!sections_.contains("model") && !entries_.contains("model.num_layers")) {
    diagnostics_.error({0, 1, 1}, "there is no section 'model', the one that every job needs");
    return spec_;
  }
  for (const Field& field : job_fields()) {
    if (field.rule.required) require(field);
  }
  resolve_model();
  resolve_training();
  check_model();
  agree_on_sharding();
  check_parallel();
  return spec_;
}

}  // namespace smp
