#include <cmath>

#include "jobfile/field_table.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/text/json.h"
#include "spec/choices.h"

namespace smp::jobfile {

namespace {

constexpr const char* kSizePattern = "^[0-9]+(\\.[0-9]+)?([KMGTPE]i?)?B?$";
constexpr const char* kCountPattern = "^[0-9]+(\\.[0-9]+)?([KMGTPE]i?)?$";
constexpr const char* kFileNamePattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$";

// 1.0 is written 1, as the bounds of whole numbers must be.
text::OrderedJson number(double value) {
  if (value == std::floor(value) && std::abs(value) <= 0x1p60) return static_cast<int64_t>(value);
  return value;
}

void add_range(const Rule& rule, text::OrderedJson& out) {
  out[rule.min_excluded ? "exclusiveMinimum" : "minimum"] = number(rule.min);
  if (std::isfinite(rule.max)) {
    out[rule.max_excluded ? "exclusiveMaximum" : "maximum"] = number(rule.max);
  }
}

// A name, or a map of the type's keys.
text::OrderedJson layer_list_form() {
  text::OrderedJson names = text::OrderedJson::array(), entries = text::OrderedJson::array();
  for (const model::OperatorRules& rules : model::all_operator_rules()) {
    text::OrderedJson entry = {
        {"type", "object"}, {"additionalProperties", false}, {"required", {"type"}}};
    entry["properties"]["type"] = {{"const", rules.type}};
    for (const model::OperatorKey& key : rules.keys) {
      entry["properties"][std::string(key.name)] = {
          {"type", "integer"}, {"minimum", key.min}, {"maximum", key.max}};
      if (!key.otherwise) entry["required"].push_back(key.name);
    }
    if (rules.takes_p) {
      entry["properties"]["p"] = {{"type", "number"}, {"minimum", 0}, {"exclusiveMaximum", 1}};
      entry["required"].push_back("p");
    }
    if (entry["required"].size() == 1) names.push_back(rules.type);
    entries.push_back(entry);
  }
  entries.push_back({{"enum", names}});
  return {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", entries}}}};
}

// Sources of a mixture, which have weights, or sets to evaluate on, which have names.
text::OrderedJson data_list_form(bool sources) {
  const text::OrderedJson text = {{"type", "string"}, {"minLength", 1}};
  text::OrderedJson item = {{"type", "object"}, {"additionalProperties", false}};
  item["required"] = {"path", sources ? "weight" : "name"};
  item["properties"] = {{"name", text}, {"path", text}};
  item["properties"]["format"] = {{"enum", choice_names<DataFormat>()}};
  item["properties"]["format"]["enum"].push_back("auto");
  if (sources) item["properties"]["weight"] = {{"type", "number"}, {"exclusiveMinimum", 0}};
  return {{"type", "array"}, {"items", item}};
}

// The ways to write the value, without `auto`.
std::vector<text::OrderedJson> forms(const Field& field) {
  const Rule& rule = field.rule;
  switch (shape_of(field)) {
    case Shape::kWhole:
    case Shape::kUnsigned:
    case Shape::kNumber: {
      text::OrderedJson plain = {
          {"type", shape_of(field) == Shape::kNumber ? "number" : "integer"}};
      add_range(rule, plain);
      if (rule.unit == Unit::kNone || rule.unit == Unit::kSeconds) return {plain};
      const bool bytes = rule.unit == Unit::kBytes || rule.unit == Unit::kBytesPerS;
      return {plain, {{"type", "string"}, {"pattern", bytes ? kSizePattern : kCountPattern}}};
    }
    case Shape::kBool: return {{{"type", "boolean"}}};
    case Shape::kText: {
      // 2024 or true are texts here, which YAML gives an editor as a number or a boolean.
      text::OrderedJson text = {{"type", "string"}, {"minLength", 1}};
      if (rule.is_file_name) text["pattern"] = kFileNamePattern;
      return {text, {{"type", "number"}}, {{"type", "boolean"}}};
    }
    case Shape::kChoice: return {{{"enum", choices_of(field)}}};
    case Shape::kWholeList:
    case Shape::kNumberList: {
      const bool whole = shape_of(field) == Shape::kWholeList;
      text::OrderedJson item = {{"type", whole ? "integer" : "number"}};
      add_range(rule, item);
      return {{{"type", "array"}, {"items", item}, {"minItems", 1}}};
    }
    case Shape::kTextList: {
      if (const std::vector<std::string> choices = choices_of(field); !choices.empty())
        return {{{"type", "array"}, {"items", {{"enum", choices}}}, {"uniqueItems", true}}};
      return {{{"type", "array"}, {"items", {{"type", "string"}, {"minLength", 1}}}}};
    }
    case Shape::kPointList: {
      text::OrderedJson point = {{"type", "object"},
                                 {"additionalProperties", false},
                                 {"required", {"ranks", "bytes", "seconds"}}};
      point["properties"]["ranks"] = {{"type", "integer"}, {"minimum", 2}};
      point["properties"]["bytes"] = {{"anyOf",
                                       {{{"type", "integer"}, {"minimum", 1}},
                                        {{"type", "string"}, {"pattern", kSizePattern}}}}};
      point["properties"]["seconds"] = {{"type", "number"}, {"exclusiveMinimum", 0}};
      for (const mesh::CollectiveOp op : kPointOps) {
        point["properties"]["op"]["enum"].push_back(name_of(op));
      }
      return {{{"type", "array"}, {"items", point}}};
    }
    case Shape::kLayerList: return {layer_list_form()};
    case Shape::kSourceList:
    case Shape::kSetList: return {data_list_form(shape_of(field) == Shape::kSourceList)};
  }
  return {};
}

text::OrderedJson default_of(const Field& field) {
  if (const auto* texts = std::get_if<Member<std::vector<std::string>>>(&field.target)) {
    JobSpec defaults;
    return (*texts)(defaults);
  }
  const auto text = value_text(field, JobSpec{});
  if (!text) return nullptr;
  if (*text == "auto") return "auto";
  const Shape shape = shape_of(field);
  const bool is_text = shape == Shape::kText || shape == Shape::kChoice;
  return is_text ? text::OrderedJson(*text) : text::OrderedJson::parse(*text);
}

text::OrderedJson described_field(const Field& field) {
  text::OrderedJson out;
  std::string doc(field.doc);
  if (!field.rule.computed.empty()) doc += " (default: " + std::string(field.rule.computed) + ")";
  out["description"] = doc;
  if (field.rule.computed.empty() && !field.rule.required) {
    if (const text::OrderedJson value = default_of(field); !value.is_null()) out["default"] = value;
  }
  std::vector<text::OrderedJson> ways = forms(field);
  if (takes_auto(field)) ways.push_back({{"const", "auto"}});
  if (ways.size() == 1) {
    out.update(ways.front());
  } else {
    out["anyOf"] = ways;
  }
  return out;
}

}  // namespace

std::string job_schema() {
  text::OrderedJson root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                            {"title", "smp job file"},
                            {"type", "object"},
                            {"additionalProperties", false},
                            {"required", {"model"}},
                            {"properties", text::OrderedJson::object()}};
  for (const Section& section : job_sections()) {
    text::OrderedJson* object = &root;
    if (!section.path.empty()) {
      std::string_view rest = section.path;
      while (!rest.empty()) {
        const size_t dot = rest.find('.');
        object = &(*object)["properties"][std::string(rest.substr(0, dot))];
        rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
      }
      *object = {{"description", section.doc},
                 {"type", text::OrderedJson::array({"object", "null"})},
                 {"additionalProperties", false},
                 {"properties", text::OrderedJson::object()}};
    }
    for (const Field& field : job_fields()) {
      if (field.section != section.path) continue;
      (*object)["properties"][std::string(field.key)] = described_field(field);
      if (!field.rule.required) continue;
      if (section.path == "model") {  // a transformer has these, or the model is a list
        text::OrderedJson& ways = (*object)["anyOf"];
        if (ways.is_null())
          ways = {{{"required", {"layers"}}}, {{"required", text::OrderedJson::array()}}};
        ways[1]["required"].push_back(field.key);
      } else {
        (*object)["required"].push_back(field.key);
      }
      (*object)["type"] = "object";  // an empty section will not do
    }
  }
  // `model: llama3-8b`, in any spelling
  root["properties"]["model"]["type"] = {"object", "string"};
  // `cluster: p5.48xlarge`
  text::OrderedJson names = text::OrderedJson::array();
  for (const NamedCluster& known : named_clusters()) names.push_back(known.name);
  text::OrderedJson& cluster = root["properties"]["cluster"];
  cluster["type"].push_back("string");
  cluster["anyOf"] = {{{"type", {"object", "null"}}}, {{"enum", names}}};
  return root.dump(2) + "\n";
}

}  // namespace smp::jobfile
