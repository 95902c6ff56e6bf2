#include "shell/shell_names.h"

#include <algorithm>
#include <cctype>

namespace smp::shell {

std::optional<ShellAssignment> assignment_of(const ShellWordSyntax& word) {
  if (word.parts.empty() || word.parts[0].kind != ShellPart::Kind::kText || word.parts[0].quoted ||
      doubt_in(word.parts[0].text)) {
    return std::nullopt;
  }
  const std::string text = plain_text(word.parts[0].text);
  const size_t bracket = text.find('['), equals = text.find('=');
  if (bracket < equals && is_shell_name(text.substr(0, bracket))) {
    return ShellAssignment{text.substr(0, bracket), false, true, text.size()};
  }
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const bool appends = text[equals - 1] == '+';
  std::string name = text.substr(0, equals - (appends ? 1 : 0));
  if (!is_shell_name(name)) return std::nullopt;
  return ShellAssignment{std::move(name), appends, false, equals + 1};
}

std::string bare_word(const ShellWordSyntax& word) {
  if (word.parts.size() != 1 || word.parts[0].kind != ShellPart::Kind::kText) return "";
  return plain_text(word.parts[0].text);
}

std::string shown_words(const std::vector<ShellWordSyntax>& words) {
  constexpr size_t kMost = 60;
  std::string out;
  for (const ShellWordSyntax& word : words) {
    if (!out.empty()) out += ' ';
    for (const ShellPart& part : word.parts) {
      out += part.kind == ShellPart::Kind::kText ? plain_text(part.text) : part.shown;
    }
    if (out.size() > kMost) return out.substr(0, kMost) + "...";
  }
  std::ranges::replace(out, '\n', ' ');
  return out;
}

void names_set_in(const std::string& text, std::set<std::string>& names) {
  std::string name;
  bool assigns = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    const char next = i + 1 < text.size() ? text[i + 1] : ' ';
    const char last = i > 0 ? text[i - 1] : ' ';
    assigns =
        assigns || (c == '+' && next == '+') || (c == '-' && next == '-') ||
        (c == '=' && next != '=' && std::string_view("=!<>").find(last) == std::string_view::npos);
  }
  if (!assigns) return;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      name += c;
    } else {
      if (is_shell_name(name)) names.insert(name);
      name.clear();
    }
  }
}

void names_that_may_be_set(const ShellCommand& command, const ShellFunctions& functions,
                           std::set<std::string>& names, int calls) {
  if (command.kind == ShellCommand::Kind::kLoop && !command.name.empty())
    names.insert(command.name);
  const std::string first = command.words.empty() ? "" : bare_word(command.words[0]);
  static const std::set<std::string> kSetters = {"read",  "mapfile", "readarray", "getopts",
                                                 "unset", "printf",  "let"};
  for (const ShellWordSyntax& word : command.words) {
    if (const auto name = assignment_of(word)) names.insert(name->name);
    const std::string bare = bare_word(word);
    if (kSetters.contains(first) && is_shell_name(bare)) names.insert(bare);
    for (const ShellPart& part : word.parts) {
      if (part.op.ends_with('=')) names.insert(part.name);
      if (part.kind == ShellPart::Kind::kArithmetic) names_set_in(plain_text(part.text), names);
    }
  }
  if (const auto found = functions.find(first);
      found != functions.end() && found->second != nullptr && calls < 8) {
    names_that_may_be_set(*found->second, functions, names, calls + 1);
  }
  for (const ShellCommand& child : command.children)
    names_that_may_be_set(child, functions, names, calls);
}

bool reads_arguments(const ShellCommand& command) {
  for (const ShellWordSyntax& word : command.words) {
    if (bare_word(word) == "getopts") return true;
    for (const ShellPart& part : word.parts) {
      if (part.kind == ShellPart::Kind::kVariable && (part.name == "#" || part.name == "1"))
        return true;
      if (part.kind == ShellPart::Kind::kArithmetic &&
          plain_text(part.text).find('#') != std::string::npos)
        return true;
    }
  }
  return std::ranges::any_of(command.children, reads_arguments);
}

}  // namespace smp::shell
