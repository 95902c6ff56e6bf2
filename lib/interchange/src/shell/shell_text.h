#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Text of a shell script, and of the values of its variables. Each character has its place in the
// script, and whether it is quoted. Unknown text (a variable that the script does not set, the
// output of a command) is one character of its own, which points to its doubt.
namespace smp::shell {

struct ShellChar {
  // kEdge: one field ends and another begins, as between the items of "${A[@]}". kEmpty: "".
  enum class Kind : uint8_t { kPlain, kUnknown, kEdge, kEmpty };
  Kind kind = Kind::kPlain;
  bool quoted = false;
  char c = 0;
  int32_t doubt = -1;  // of kUnknown; of kEdge: why the field behind it may be absent, or -1
  uint32_t at = 0;     // byte of the script
};
using ShellText = std::vector<ShellChar>;

// Why a text is unknown.
struct ShellDoubt {
  std::string what;     // "$LAYERS, which this text does not set"
  uint32_t at = 0;      // where it is decided
  bool unset = false;   // a variable that nothing sets: ${NAME:-default} has its default
  std::string name;     // of that variable
  bool choice = false;  // one of several, by a test that is not known
  std::vector<ShellText> choices;
};

ShellText shell_text(std::string_view text);
std::string plain_text(const ShellText& text);  // without what is not known
std::optional<int32_t> doubt_in(const ShellText& text);
bool same_text(const ShellText& a, const ShellText& b);  // wherever they stand
bool is_shell_name(std::string_view text);

inline bool is_shell_blank(const ShellChar& c) {
  return c.kind == ShellChar::Kind::kPlain && (c.c == ' ' || c.c == '\t' || c.c == '\n');
}

}  // namespace smp::shell
