#include "importers/toml_tree.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

// toml++ asserts that a table's header begins with a key ("[=]" does not), and takes it for granted
// where assertions are off. Here what it asserts of a text ends the parse. This file is therefore
// compiled alone.
namespace smp::importers {
struct TomlAssertion {};
[[noreturn]] inline void end_toml_parse() { throw TomlAssertion{}; }
}  // namespace smp::importers
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? void() : ::smp::importers::end_toml_parse())
#include <toml++/toml.h>

namespace smp::importers {
namespace {

class TomlTree {
 public:
  TomlTree(std::string_view text, int source) : source_(source) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      lines_.push_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  // The first table's header without a key, or the first line.
  text::Place header_without_key() const {
    for (size_t line = 0; line < lines_.size(); ++line) {
      const size_t start = lines_[line].find_first_not_of(" \t");
      if (start == std::string_view::npos || lines_[line][start] != '[') continue;
      const size_t key = lines_[line].find_first_not_of("[ \t", start);
      const auto is_key = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '"' || c == '\'' || c >= 0x80;
      };
      if (key == std::string_view::npos || is_key(lines_[line][key])) continue;
      return {source_, static_cast<int>(line) + 1, static_cast<int>(key) + 1};
    }
    return {source_, 1, 1};
  }

  text::Place place(const toml::source_position& at) const {
    return {source_, static_cast<int>(at.line), static_cast<int>(at.column)};
  }

  text::YamlNode node(const toml::node& value) const {
    text::YamlNode out;
    out.place = place(value.source().begin);
    if (const toml::table* table = value.as_table()) {
      out.kind = text::YamlNode::Kind::kMap;
      for (const auto& [key, inner] : *table) {
        out.entries.push_back({std::string(key.str()), place(key.source().begin), node(inner)});
      }
      // The table sorts its keys by name.
      std::ranges::stable_sort(out.entries, {}, [](const text::YamlEntry& entry) {
        return std::pair(entry.place.line, entry.place.column);
      });
    } else if (const toml::array* array = value.as_array()) {
      out.kind = text::YamlNode::Kind::kList;
      for (const toml::node& item : *array) out.items.push_back(node(item));
    } else {
      out.kind = text::YamlNode::Kind::kScalar;
      const auto string = value.value<std::string>();
      out.quoted = value.is_string();
      out.text = out.quoted ? *string : written(value.source());
    }
    return out;
  }

 private:
  std::string written(const toml::source_region& region) const {
    const auto line = static_cast<size_t>(region.begin.line) - 1;
    if (region.begin.line != region.end.line || line >= lines_.size()) return "";
    std::string out(
        lines_[line].substr(region.begin.column - 1, region.end.column - region.begin.column));
    std::erase(out, '_');  // 1_000
    return out;
  }

  int source_;
  std::vector<std::string_view> lines_;
};

}  // namespace

text::YamlTree parse_toml(std::string_view text, int source, text::Diagnostics& diagnostics) {
  const TomlTree tree(text, source);
  text::YamlTree out;
  try {
    const toml::table table = toml::parse(text, std::string_view());
    out.root = tree.node(table);
    out.complete = true;
  } catch (const toml::parse_error& error) {
    diagnostics.error(tree.place(error.source().begin), std::string(error.description()));
  } catch (const TomlAssertion&) {
    diagnostics.error(tree.header_without_key(), "invalid TOML: expected the key of a table");
  }
  return out;
}

}  // namespace smp::importers
