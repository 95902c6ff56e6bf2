#include "shell/shell_text.h"

#include <algorithm>
#include <cctype>

namespace smp::shell {

ShellText shell_text(std::string_view text) {
  ShellText out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && (i + 1 == text.size() || text[i + 1] == '\n')) continue;
    out.push_back({.c = text[i], .at = static_cast<uint32_t>(i)});
  }
  return out;
}

std::string plain_text(const ShellText& text) {
  std::string out;
  for (const ShellChar& c : text) {
    if (c.kind == ShellChar::Kind::kPlain) out += c.c;
  }
  return out;
}

std::optional<int32_t> doubt_in(const ShellText& text) {
  const auto found = std::ranges::find(text, ShellChar::Kind::kUnknown, &ShellChar::kind);
  return found != text.end() ? std::optional(found->doubt) : std::nullopt;
}

bool same_text(const ShellText& a, const ShellText& b) {
  return std::ranges::equal(a, b, [](const ShellChar& x, const ShellChar& y) {
    return x.kind == y.kind && x.c == y.c && x.doubt == y.doubt;
  });
}

bool is_shell_name(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  return std::ranges::all_of(text,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

}  // namespace smp::shell
