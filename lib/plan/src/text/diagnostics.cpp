#include "smp/plan/text/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"

namespace smp::text {

namespace {

constexpr size_t kMostShown = 50;
constexpr size_t kWidestLine = 100;  // characters of a source line that are shown
constexpr size_t kBeforeCaret = 40;  // of them, before the caret in a longer line

std::string_view line_of(std::string_view text, int line) {
  for (int i = 1; i < line; ++i) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

// The characters of a line, each as what a terminal can show safely. A byte that is no UTF-8 and a
// control character become '?'; a tab becomes a blank, so that the caret stands right.
std::vector<std::string> characters(std::string_view line) {
  std::vector<std::string> out;
  for (size_t i = 0; i < line.size();) {
    const auto lead = static_cast<unsigned char>(line[i]);
    size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
    for (size_t k = 1; k < length; ++k) {
      if (i + k >= line.size() || (static_cast<unsigned char>(line[i + k]) & 0xC0) != 0x80)
        length = 0;
    }
    if (lead == '\t') {
      out.emplace_back(" ");
    } else if (length == 0 || lead < 0x20 || lead == 0x7F ||
               (lead == 0xC2 && length == 2 && static_cast<unsigned char>(line[i + 1]) < 0xA0)) {
      out.emplace_back("?");
    } else {
      out.emplace_back(line.substr(i, length));
    }
    i += std::max<size_t>(length, 1);
  }
  return out;
}

std::string joined(const std::vector<std::string>& parts, size_t from, size_t to) {
  std::string out;
  for (size_t i = from; i < std::min(to, parts.size()); ++i) out += parts[i];
  return out;
}

}  // namespace

int Diagnostics::add_source(std::string name, std::string text, bool has_line_numbers) {
  sources_.push_back({std::move(name), std::move(text), has_line_numbers});
  return static_cast<int>(sources_.size()) - 1;
}

void Diagnostics::error(Place place, std::string message) {
  SMP_CHECK(place.source >= 0 && place.source < static_cast<int>(sources_.size()));
  errors_.push_back({place, std::move(message)});
}

std::string Diagnostics::shown(const Error& error) const {
  const Source& source = sources_[static_cast<size_t>(error.place.source)];
  const std::string_view line = line_of(source.text, error.place.line);
  const size_t bytes_before =
      std::min(line.size(), static_cast<size_t>(std::max(error.place.column, 1)) - 1);
  const size_t caret = characters(line.substr(0, bytes_before)).size();

  std::string out = source.name;
  if (source.has_line_numbers) out += fmt::format(":{}:{}", error.place.line, caret + 1);
  out += ": " + error.message;
  if (line.empty()) return out;

  const std::vector<std::string> all = characters(line);
  size_t from = 0;
  if (all.size() > kWidestLine && caret > kBeforeCaret) from = caret - kBeforeCaret;
  const std::string head = from > 0 ? "..." : "";
  const std::string tail = all.size() > from + kWidestLine ? "..." : "";
  out += "\n  " + head + joined(all, from, from + kWidestLine) + tail;
  out += "\n  " + std::string(head.size() + caret - from, ' ') + "^";
  return out;
}

std::string Diagnostics::text() const {
  std::vector<const Error*> sorted;
  for (const Error& error : errors_) sorted.push_back(&error);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Error* a, const Error* b) {
    return std::tie(a->place.source, a->place.line, a->place.column) <
           std::tie(b->place.source, b->place.line, b->place.column);
  });
  std::string out;
  for (size_t i = 0; i < std::min(sorted.size(), kMostShown); ++i) {
    if (i > 0) out += '\n';
    out += shown(*sorted[i]);
  }
  if (sorted.size() > kMostShown) {
    out += fmt::format("\nand {} more errors", sorted.size() - kMostShown);
  }
  return out;
}

void Diagnostics::raise_if_any() const {
  if (any()) throw ConfigError(text());
}

}  // namespace smp::text
