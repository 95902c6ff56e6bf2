#include "importers/printed_config.h"

#include <algorithm>
#include <vector>

namespace smp::importers {
namespace {

constexpr std::string_view kContainer = "_target_: megatron.bridge.training.config.ConfigContainer";

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// "key:" or "- item" at the margin, or a line below one.
bool is_yaml_line(std::string_view line) {
  if (line.empty() || line.front() == ' ' || line.starts_with("- ")) return true;
  const size_t colon = line.find(':');
  if (colon == line.npos || colon == 0) return false;
  const bool ends = colon + 1 == line.size() || line[colon + 1] == ' ';
  return ends && line.substr(0, colon).find_first_not_of(
                     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
                     std::string_view::npos;
}

}  // namespace

std::string printed_nemo_config(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  const auto contains = [](std::string_view line) { return line.find(kContainer) != line.npos; };
  const auto begin = std::ranges::find_if(lines, contains);
  if (begin == lines.end()) return std::string(text);
  // A file that is the YAML alone has keys before this one in another order.
  const std::string_view head = begin->substr(0, begin->find(kContainer));
  const bool is_file = head.empty() && std::ranges::all_of(lines, [](std::string_view line) {
                         return is_yaml_line(line) || line.starts_with('#');
                       });
  if (is_file) return std::string(text);
  std::string out(static_cast<size_t>(begin - lines.begin()), '\n');
  for (auto line = begin; line != lines.end(); ++line) {
    if (!line->starts_with(head) || !is_yaml_line(line->substr(head.size()))) break;
    out += std::string(head.size(), ' ') + std::string(line->substr(head.size())) + "\n";
  }
  return out;
}

std::string printed_megatron_arguments(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  std::string out;
  bool inside = false;
  size_t head = 0;
  for (const std::string_view line : lines) {
    const size_t begin = line.find("--- arguments ---");
    const size_t end = line.find("--- end of arguments ---");
    if (begin != line.npos && out.find_first_not_of('\n') == out.npos) {
      inside = true;
      head = line.find('-');
    } else if (end != line.npos) {
      if (inside) return out;
    } else if (inside && line.size() > head) {
      out += std::string(head, ' ') + std::string(line.substr(head));
    }
    out += '\n';
  }
  return inside ? out : "";
}

}  // namespace smp::importers
