#include "smp/launcher/hosts/shell_words.h"

#include <fmt/format.h>

#include "smp/plan/base/errors.h"

namespace smp::hosts {

std::string quoted_for_shell(std::string_view word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') text += "'\\'";
    text.push_back(c);
  }
  text.push_back('\'');
  return text;
}

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text.push_back(' ');
    text += quoted_for_shell(word);
  }
  return text;
}

std::vector<std::string> words_of_command(const std::string& option, const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;  // a word has begun, if only with quotes
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ' || c == '\t') {
      if (open) words.push_back(word);
      word.clear();
      open = false;
    } else if (c == '\'' || c == '"') {
      const size_t close = text.find(c, i + 1);
      if (close == text.npos)
        throw ConfigError(fmt::format("{} '{}': a quote is not closed", option, text));
      word.append(text, i + 1, close - i - 1);
      open = true;
      i = close;
    } else {
      word.push_back(c);
      open = true;
    }
  }
  if (open) words.push_back(word);
  return words;
}

}  // namespace smp::hosts
