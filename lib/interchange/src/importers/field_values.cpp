#include "importers/field_values.h"

#include <algorithm>

namespace smp::importers {

text::YamlNode scalar_node(std::string text, text::Place place) {
  text::YamlNode node;
  node.kind = NodeKind::kScalar;
  node.place = place;
  node.text = std::move(text);
  return node;
}

bool is_off(const text::YamlNode& node) {
  if (node.kind == NodeKind::kNull) return true;
  if (node.kind == NodeKind::kList) return node.items.empty();
  if (node.kind == NodeKind::kMap) return node.entries.empty();
  return node.text == "null" || node.text == "None" || node.text == "[]" || node.text == "{}" ||
         bool_value(node) == false;
}

bool is_none(const text::YamlNode& node) {
  return node.kind == NodeKind::kNull ||
         (node.kind == NodeKind::kScalar && (node.text == "None" || node.text == "null"));
}

std::string last_word(const text::YamlNode& node) {
  std::string text = node.text;
  if (const text::YamlEntry* target =
          node.kind == NodeKind::kMap ? node.find("_target_") : nullptr) {
    text = target->value.text;
  }
  if (text.starts_with("<function ")) text = text.substr(10, text.find(' ', 10) - 10);
  return text.substr(text.rfind('.') + 1);
}

std::vector<std::string> items_of(const text::YamlNode& node) {
  std::vector<std::string> out;
  if (node.kind == NodeKind::kList) {
    for (const text::YamlNode& item : node.items) out.push_back(item.text);
    return out;
  }
  std::string word;
  for (const char c : node.text + ",") {
    if (c == ',') {
      if (!word.empty()) out.push_back(word);
      word.clear();
    } else if (std::string_view("[]()'\" ").find(c) == std::string_view::npos) {
      word += c;
    }
  }
  return out;
}

std::string with_commas(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ",") + item;
  return out;
}

bool is_one_of(std::string_view words, const text::YamlNode& node) {
  if (node.kind == NodeKind::kList && !words.empty()) {
    return std::ranges::all_of(node.items,
                               [&](const auto& item) { return is_one_of(words, item); });
  }
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == node.text) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace smp::importers
