#include "jobfile/job_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/framework_load.h"
#include "jobfile/job_layer_list.h"
#include "jobfile/key_hint.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/text/suggest.h"

namespace smp::jobfile {

namespace {

text::YamlNode scalar_node(std::string text, text::Place place) {
  text::YamlNode node;
  node.kind = text::YamlNode::Kind::kScalar;
  node.text = std::move(text);
  node.place = place;
  return node;
}

bool takes_list(const Field& field) {
  return std::holds_alternative<Member<std::vector<int64_t>>>(field.target) ||
         std::holds_alternative<Member<std::vector<double>>>(field.target) ||
         std::holds_alternative<Member<std::vector<std::string>>>(field.target) ||
         std::holds_alternative<Member<std::vector<LinkPoint>>>(field.target) ||
         std::holds_alternative<Member<std::vector<OperatorSpec>>>(field.target) ||
         std::holds_alternative<Member<std::vector<MixtureSource>>>(field.target) ||
         std::holds_alternative<Member<std::vector<EvaluationSet>>>(field.target);
}

}  // namespace

void JobBuilder::add(const text::YamlNode& node, bool complete) {
  complete_ = complete_ && complete && node.kind == text::YamlNode::Kind::kMap;
  if (node.kind == text::YamlNode::Kind::kMap) {
    read_section(node, "");
  } else if (complete && node.kind == text::YamlNode::Kind::kNull) {
    diagnostics_.error({node.place.source, 1, 1},
                       "the file is empty; it needs sections such as model and cluster");
  } else if (complete) {
    diagnostics_.error(node.place, fmt::format("a job file is a map of sections (model, cluster, "
                                               "training, parallel), not {}",
                                               text::described(node)));
  }
}

void JobBuilder::forget(std::string_view section) {
  SMP_CHECK(section == "model" || section == "cluster");
  if (section == "model") {
    spec_.model = {};
  } else {
    spec_.cluster = {};
  }
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.first.starts_with(std::string(section) + ".");
  });
}

void JobBuilder::read_section(const text::YamlNode& node, std::string_view section) {
  for (const text::YamlEntry& entry : node.entries) {
    const std::string path = joined_path(section, entry.key);
    if (const Field* field = find_field(path); field && field->key == entry.key) {
      entries_[path].place = entry.place;
      read_value(*field, entry.value, entry.key);
    } else if (find_section(path) && entry.key.find('.') == std::string::npos) {
      sections_[path] = entry.place;
      // Nothing at all is a section with all its keys commented out.
      if (entry.value.kind == text::YamlNode::Kind::kMap) {
        read_section(entry.value, path);
      } else if (entry.value.kind != text::YamlNode::Kind::kNull && !entry.value.reported) {
        diagnostics_.error(
            entry.value.place,
            fmt::format("{} must be a map of keys such as '{}: ...', not {}", entry.key,
                        keys_of(path).front(), text::described(entry.value)));
      }
    } else {
      report_unknown(std::string(section), entry.key, entry.place);
    }
  }
}

void JobBuilder::read_value(const Field& field, const text::YamlNode& node,
                            const std::string& shown_name) {
  Entry& entry = entries_[path_of(field)];
  if (node.reported) {
    entry.state = State::kBad;
    return;
  }
  const text::YamlNode* part = nullptr;
  const std::string problem = assign(field, spec_, node, part);
  if (shape_of(field) == Shape::kLayerList) {
    layer_places_.clear();
    for (const text::YamlNode& item : node.items) layer_places_.push_back(item.place);
  }
  if (problem.empty()) {
    entry.state =
        takes_auto(field) && node.kind == text::YamlNode::Kind::kScalar && node.text == "auto"
            ? State::kAbsent
            : State::kGiven;
    return;
  }
  entry.state = State::kBad;
  if (shape_of(field) == Shape::kLayerList) {
    for (const LayerListProblem& wrong : layer_list_problems(node)) {
      diagnostics_.error(wrong.where->place, shown_name + " " + wrong.words);
    }
    return;
  }
  diagnostics_.error(part == nullptr ? node.place : part->place, shown_name + " " + problem);
}

void JobBuilder::report_unknown(const std::string& section, const std::string& key,
                                text::Place place) {
  const KeyHint hint = key_hint(section, key);
  diagnostics_.error(place, fmt::format("unknown key {} {}{}", text::quoted_for_message(key),
                                        where(section), hint.words));
  // The key that was meant is then not reported as missing.
  if (hint.path.empty()) return;
  if (find_section(hint.path)) {
    misspelt_sections_.insert(hint.path);
    return;
  }
  Entry& meant = entries_[hint.path];
  if (meant.state == State::kAbsent) meant.state = State::kBad;
}

void JobBuilder::add_override(const std::string& text) {
  const int source = diagnostics_.add_source("--set", text, /*has_line_numbers=*/false);
  const size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  const text::Place key_place{source, 1, 1};
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
      report_unknown(section, key, {source, 1, static_cast<int>(dot + 2)});
      return;
    }
    std::vector<std::string> paths;
    for (const Field& known : job_fields()) paths.push_back(path_of(known));
    std::vector<std::string> sections;
    for (const Section& one : job_sections()) {
      if (!one.path.empty()) sections.emplace_back(one.path);
    }
    const auto near = text::nearest(path, paths);
    diagnostics_.error(key_place,
                       fmt::format("unknown section {}{}", text::quoted_for_message(section),
                                   near ? ", did you mean '" + *near + "'?"
                                        : "; there are " + comma_list(sections)));
    return;
  }

  const text::Place value_place{source, 1, static_cast<int>(equals) + 2};
  const std::string value = text.substr(equals + 1);
  entries_[path].place = key_place;
  if (value.empty()) {
    entries_[path].state = State::kBad;
    diagnostics_.error(value_place, path + " needs a value");
  } else if (takes_list(*field) && value.starts_with('[')) {
    text::Diagnostics inner;
    const text::YamlTree tree = text::parse_yaml(value, inner.add_source("", value), inner);
    if (inner.any()) {
      entries_[path].state = State::kBad;
      diagnostics_.error(value_place, path + " is not a valid list, as in [3, 3, 2]");
      return;
    }
    text::YamlNode node = tree.root;
    node.place = value_place;
    read_value(*field, node, path);
  } else {
    read_value(*field, scalar_node(value, value_place), path);
  }
}

text::Place JobBuilder::section_place(std::string_view section) const {
  const auto found = sections_.find(section);
  return found == sections_.end() ? text::Place{0, 1, 1} : found->second;
}

void JobBuilder::require_all(const Section& section) {
  std::vector<std::string> missing;
  for (const Field& field : job_fields()) {
    const std::vector<ModelFamily>& families = field.rule.required_by;
    const bool by_family =
        usable({"model.family"}) &&
        std::find(families.begin(), families.end(), spec_.model.family) != families.end();
    if (field.section != section.path || !(field.rule.required || by_family)) continue;
    const Condition& condition = field.rule.condition;
    if (condition.holds && (!condition.holds(spec_) || !usable({condition.key}))) continue;
    Entry& entry = entries_[path_of(field)];
    if (entry.state != State::kAbsent) continue;
    entry.state = State::kBad;
    missing.emplace_back(field.key);
  }
  if (missing.empty()) return;
  diagnostics_.error(section_place(section.path),
                     fmt::format("{} needs {}", section.path, comma_list(missing)));
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

text::Place JobBuilder::place_of(std::initializer_list<std::string_view> paths) const {
  for (const std::string_view path : paths) {
    const auto found = entries_.find(path);
    if (found != entries_.end() && found->second.state == State::kGiven) return found->second.place;
  }
  return section_place("model");
}

void JobBuilder::error(std::initializer_list<std::string_view> paths, std::string message) {
  diagnostics_.error(place_of(paths), std::move(message));
}

void JobBuilder::resolve_framework() {
  FrameworkChoice& choice = spec_.parallel.framework;
  choice.habits = framework::shipped_framework(choice.name);
  if (choice.habits || framework::is_unknown(choice) || !usable({"parallel.framework"})) return;
  if (!framework::is_framework_path(choice.name)) {
    error({"parallel.framework"}, framework::unknown_framework(choice.name));
    return;
  }
  if (framework_file_ == FrameworkFile::kLeave) return;
  try {
    choice.habits = framework::load_framework(choice.name, diagnostics_);
  } catch (const ConfigError& unreadable) {
    error({"parallel.framework"}, unreadable.what());
  }
}

JobSpec JobBuilder::finish(const std::string& fallback_name) {
  if (spec_.name.empty()) spec_.name = fallback_name;
  if (!complete_) return spec_;  // what is missing may stand behind the syntax error
  const bool has_model =
      sections_.contains("model") ||
      std::any_of(entries_.begin(), entries_.end(),  // from the command line
                  [](const auto& entry) { return entry.first.starts_with("model."); });
  if (!has_model) {
    if (!misspelt_sections_.contains("model")) {
      diagnostics_.error({0, 1, 1}, "section 'model' is missing: every job needs it");
    }
    return spec_;
  }
  resolve_framework();
  for (const Section& section : job_sections()) require_all(section);
  resolve_model();
  resolve_training();
  check_model();
  check_batch_ramp();
  check_optimizer();
  check_fine_tuning();
  check_rates();
  check_precision();
  check_data();
  check_trace();
  agree_on_sharding();
  agree_on_recompute();
  agree_on_pipeline();
  check_parallel();
  return spec_;
}

}  // namespace smp::jobfile
