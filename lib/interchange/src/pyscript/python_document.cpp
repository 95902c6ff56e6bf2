#include <fmt/format.h>

#include <algorithm>

#include "pyscript/python_script.h"

// A value of Python as a document.
namespace smp::pyscript {
namespace {

using Kind = PythonValue::Kind;

class DocumentWriter {
 public:
  DocumentWriter(std::span<const std::string_view> unread, text::Diagnostics& diagnostics)
      : unread_(unread), diagnostics_(diagnostics) {}

  text::YamlNode write(const PythonValue& value, const std::string& name, int depth) {
    text::YamlNode node;
    node.place = value.place;
    node.kind = text::YamlNode::Kind::kScalar;
    if (depth > kMostDepth || ++nodes_ > kMostNodes) {
      if (!reported_) diagnostics_.error(value.place, "this value is too large to import");
      reported_ = node.reported = true;
      return node;
    }
    switch (value.kind) {
      case Kind::kNone: node.kind = text::YamlNode::Kind::kNull; break;
      case Kind::kBool: node.text = value.whole != 0 ? "true" : "false"; break;
      case Kind::kWhole: node.text = fmt::format("{}", value.whole); break;
      case Kind::kNumber: node.text = fmt::format("{}", value.number); break;
      case Kind::kText:
        node.text = value.text;
        node.quoted = true;
        break;
      case Kind::kList:
        node.kind = text::YamlNode::Kind::kList;
        for (const PythonValue* item : value.items) {
          node.items.push_back(write(*item, name, depth + 1));
        }
        break;
      case Kind::kMap: write_map(value, node, depth); break;
      case Kind::kCall:
        refuse(value, name, value.text + "(...), which smp does not evaluate", node);
        break;
      case Kind::kUnknown: refuse(value, name, value.text, node); break;
    }
    return node;
  }

 private:
  static constexpr int kMostDepth = 64;
  static constexpr int kMostNodes = 1 << 16;

  void refuse(const PythonValue& value, const std::string& name, const std::string& why,
              text::YamlNode& node) {
    diagnostics_.error(value.place, fmt::format("{}: {}: write the value instead", name, why));
    node.reported = true;
  }

  void write_map(const PythonValue& value, text::YamlNode& node, int depth) {
    node.kind = text::YamlNode::Kind::kMap;
    for (const PythonEntry& entry : value.entries) {
      const auto first = std::ranges::find(node.entries, entry.key, &text::YamlEntry::key);
      if (first != node.entries.end()) {
        diagnostics_.error(entry.place,
                           fmt::format("{} is given twice, first on line {}",
                                       text::quoted_for_message(entry.key), first->place.line));
        continue;
      }
      node.entries.push_back({entry.key, entry.place, {}});
      text::YamlNode& of_key = node.entries.back().value;
      if (std::ranges::count(unread_, entry.key) > 0) {
        of_key.kind = text::YamlNode::Kind::kScalar;
        of_key.place = entry.place;
      } else {
        of_key = write(*entry.value, entry.key, depth + 1);
      }
    }
  }

  std::span<const std::string_view> unread_;
  text::Diagnostics& diagnostics_;
  int nodes_ = 0;
  bool reported_ = false;
};

}  // namespace

text::YamlNode document_of(const PythonValue& value, const std::string& name,
                           std::span<const std::string_view> unread,
                           text::Diagnostics& diagnostics) {
  return DocumentWriter(unread, diagnostics).write(value, name, 0);
}

}  // namespace smp::pyscript
