#pragma once

#include <regex.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "smp/plan/text/json.h"
#include "smp/plan/text/yaml_tree.h"

// Validates a job file against the schema as an editor would: YAML values become JSON by the YAML
// 1.2 core rules, and the walker knows the draft-07 keywords that job_schema() uses, no others.
namespace smp::test {

// POSIX extended patterns: std::regex makes g++ 12 warn under the sanitizers.
inline bool matches(const std::string& text, const std::string& pattern) {
  regex_t compiled;
  if (regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0) {
    throw std::invalid_argument("pattern " + pattern);
  }
  const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

inline text::Json json_of(const text::YamlNode& node) {
  switch (node.kind) {
    case text::YamlNode::Kind::kNull: return nullptr;
    case text::YamlNode::Kind::kList: {
      text::Json list = text::Json::array();
      for (const text::YamlNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case text::YamlNode::Kind::kMap: {
      text::Json map = text::Json::object();
      for (const text::YamlEntry& entry : node.entries) map[entry.key] = json_of(entry.value);
      return map;
    }
    case text::YamlNode::Kind::kScalar: break;
  }
  if (node.quoted) return node.text;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (matches(node.text, "^[-+]?[0-9]+$")) {
    return node.text[0] == '-' ? text::Json(std::stoll(node.text))
                               : text::Json(std::stoull(node.text));
  }
  if (matches(node.text, "^[-+]?(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?$"))
    return std::stod(node.text);
  return node.text;
}

inline bool has_type(const text::Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
  }
  throw std::logic_error("the schema has the unknown type " + type);
}

// What is wrong, with the path of the value; "" = nothing.
inline std::string schema_problem(const text::Json& schema, const text::Json& value,
                                  const std::string& path = "$") {
  for (const auto& [keyword, rule] : schema.items()) {
    const auto wrong = [&, name = keyword] { return path + " breaks " + name; };
    if (keyword == "type") {
      bool any = false;
      for (const auto& type : rule.is_array() ? rule : text::Json::array({rule})) {
        any |= has_type(value, type.get<std::string>());
      }
      if (!any) return wrong();
    } else if (keyword == "enum") {
      if (std::find(rule.begin(), rule.end(), value) == rule.end()) return wrong();
    } else if (keyword == "const") {
      if (value != rule) return wrong();
    } else if (keyword == "minimum") {
      if (value.is_number() && value < rule) return wrong();
    } else if (keyword == "maximum") {
      if (value.is_number() && value > rule) return wrong();
    } else if (keyword == "exclusiveMinimum") {
      if (value.is_number() && value <= rule) return wrong();
    } else if (keyword == "exclusiveMaximum") {
      if (value.is_number() && value >= rule) return wrong();
    } else if (keyword == "minLength") {
      if (value.is_string() && value.get<std::string>().size() < rule.get<size_t>()) return wrong();
    } else if (keyword == "minItems") {
      if (value.is_array() && value.size() < rule.get<size_t>()) return wrong();
    } else if (keyword == "pattern") {
      if (value.is_string() && !matches(value.get<std::string>(), rule.get<std::string>())) {
        return wrong();
      }
    } else if (keyword == "anyOf") {
      bool any = false;
      for (const auto& way : rule) any |= schema_problem(way, value, path).empty();
      if (!any) return wrong();
    } else if (keyword == "required") {
      for (const auto& key : rule) {
        if (value.is_object() && !value.contains(key.get<std::string>())) {
          return path + " lacks " + key.get<std::string>();
        }
      }
    } else if (keyword == "items") {
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
        const std::string problem =
            schema_problem(rule, value[i], path + "[" + std::to_string(i) + "]");
        if (!problem.empty()) return problem;
      }
    } else if (keyword == "properties") {
      if (!value.is_object()) continue;
      for (const auto& [key, member] : value.items()) {
        if (!rule.contains(key)) continue;
        const std::string problem = schema_problem(rule[key], member, path + "." + key);
        if (!problem.empty()) return problem;
      }
    } else if (keyword == "additionalProperties") {
      if (rule != false) throw std::logic_error("additionalProperties is only false");
      if (!value.is_object()) continue;
      for (const auto& [key, member] : value.items()) {
        if (!schema.at("properties").contains(key)) return path + " has the unknown key " + key;
      }
    } else if (keyword != "$schema" && keyword != "title" && keyword != "description" &&
               keyword != "default") {
      throw std::logic_error("the schema has the unknown keyword " + keyword);
    }
  }
  return "";
}

}  // namespace smp::test
