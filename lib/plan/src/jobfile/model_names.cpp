#include "jobfile/model_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "smp/plan/text/lower_case.h"

namespace smp::jobfile {
namespace {

// What a name has behind that of the sizes. Not -v0.3: of Mistral 7B, each version has its own.
constexpr std::array<std::string_view, 8> kModelSuffixes = {"-instruct", "-base", "-chat", "-hf",
                                                            "-it",       "-pt",   "-2407", "-2501"};

bool is_separator(char c) { return c == '-' || c == '_' || c == '.' || c == ' '; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "qwen3-8b", but not "t5", of which there is a size called base.
bool ends_with_size(std::string_view name) {
  return name.size() > 1 && is_digit(name[name.size() - 2]) && !is_digit(name.back());
}

// "llama3config8b" and "llama3modelprovider8b" are "llama3-8b".
void cut_class_word(std::string& name) {
  for (const std::string_view word : {"modelprovider", "provider", "config"}) {
    const size_t at = name.find(word);
    if (at == std::string::npos || at == 0) continue;
    name = fmt::format("{}-{}", name.substr(0, at), name.substr(at + word.size()));
    return;
  }
}

void cut_suffixes(std::string& name) {
  for (bool cut = true; cut;) {
    cut = false;
    for (const std::string_view suffix : kModelSuffixes) {
      if (!name.ends_with(suffix)) continue;
      const size_t rest = name.size() - suffix.size();
      if (suffix == "-base" && !ends_with_size(std::string_view(name).substr(0, rest))) continue;
      name.resize(rest);
      cut = true;
    }
  }
}

}  // namespace

std::string compared_name(std::string_view name) {
  std::string plain = text::lower_case(name.substr(name.rfind('/') + 1));
  std::ranges::replace_if(plain, is_separator, '-');
  cut_class_word(plain);
  plain.erase(plain.find_last_not_of('-') + 1);
  cut_suffixes(plain);
  std::string compared;
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool between_digits =
        i > 0 && i + 1 < plain.size() && is_digit(plain[i - 1]) && is_digit(plain[i + 1]);
    if (plain[i] != '-' || between_digits) compared += plain[i];
  }
  return compared;
}

}  // namespace smp::jobfile
