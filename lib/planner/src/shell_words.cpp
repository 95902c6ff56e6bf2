#include "shell_words.h"

#include <cctype>
#include <map>

namespace smp {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// One pass over the text. A quote that follows NAME= is a value, or, where it holds options, more
// words: ARGS="--tensor-model-parallel-size 2".
class Scanner {
 public:
  Scanner(std::string_view text, int source) : text_(text), source_(source) {}

  std::vector<ShellWord> scan() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size() &&
          (text_[at_ + 1] == '\n' || text_[at_ + 1] == '\r')) {
        step();
        step();
      } else if (std::isspace(static_cast<unsigned char>(c)) || c == '(' || c == ')' || c == ';' ||
                 c == '&' || c == '|') {
        step();
      } else if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') step();
      } else {
        word();
      }
    }
    return std::move(words_);
  }

 private:
  void step() {
    if (text_[at_] == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    }
    ++at_;
  }

  void word() {
    ShellWord word;
    word.place = {source_, line_, static_cast<int>(at_ - line_begin_) + 1};
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (std::isspace(static_cast<unsigned char>(c)) || c == ';' || c == '&' || c == '|') break;
      if (c == ')' && word.text.find('(') == std::string::npos) break;
      if (c == '(' && word.text.ends_with('=')) {  // an array: its items are words
        return;
      }
      if (c == '\\') {
        if (at_ + 1 < text_.size() && (text_[at_ + 1] == '\n' || text_[at_ + 1] == '\r')) break;
        step();
        if (at_ < text_.size()) {
          word.text += text_[at_];
          step();
        }
      } else if (c == '"' || c == '\'') {
        if (quoted(word)) return;
      } else if (c == '$') {
        variable(word);
      } else {
        word.text += c;
        step();
      }
    }
    if (!assign(word)) words_.push_back(std::move(word));
  }

  // True if the quote held words of its own, so that the one before it is done with.
  bool quoted(ShellWord& word) {
    const char quote = text_[at_];
    const size_t end = closing(quote);
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    const bool value_of_name = word.text.ends_with('=') && word.text.find('-') == std::string::npos;
    if (inside.find("--") != std::string_view::npos && (word.text.empty() || value_of_name)) {
      step();  // what is inside is read as if it had no quotes; the closing one is a blank
      scan_until(end);
      if (at_ < text_.size()) step();
      return true;
    }
    step();
    while (at_ < end) {
      if (text_[at_] == '$' && quote == '"') {
        variable(word);
      } else {
        if (text_[at_] == '\\' && quote == '"' && at_ + 1 < end) step();
        word.text += text_[at_];
        step();
      }
    }
    if (at_ < text_.size()) step();
    return false;
  }

  void scan_until(size_t end) {
    Scanner inner(text_.substr(0, end), source_);
    inner.at_ = at_;
    inner.line_ = line_;
    inner.line_begin_ = line_begin_;
    inner.variables_ = variables_;
    for (ShellWord& word : inner.scan()) words_.push_back(std::move(word));
    while (at_ < end) step();
  }

  size_t closing(char quote) const {
    for (size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\' && quote == '"') {
        ++i;
      } else if (text_[i] == quote) {
        return i;
      }
    }
    return text_.size();
  }

  // $NAME, ${NAME}, ${NAME:-default}; arithmetic and commands stay unset.
  void variable(ShellWord& word) {
    const size_t begin = at_;
    step();
    std::string name, fallback;
    bool has_fallback = false;
    if (at_ < text_.size() && text_[at_] == '{') {
      step();
      while (at_ < text_.size() && is_name(text_[at_])) take(name);
      if (text_.substr(at_, 2) == ":-") {
        has_fallback = true;
        step();
        step();
        while (at_ < text_.size() && text_[at_] != '}') take(fallback);
      }
      while (at_ < text_.size() && text_[at_] != '}' && text_[at_] != '\n') step();
      if (at_ < text_.size()) step();
    } else if (at_ < text_.size() && text_[at_] == '(') {
      int depth = 0;
      do {
        if (text_[at_] == '(') ++depth;
        if (text_[at_] == ')') --depth;
        step();
      } while (at_ < text_.size() && depth > 0);
      word.unset = text_.substr(begin, std::min<size_t>(at_ - begin, 40));
      return;
    } else {
      while (at_ < text_.size() && is_name(text_[at_])) take(name);
    }
    const auto found = variables_.find(name);
    if (found != variables_.end()) {
      word.text += found->second;
    } else if (has_fallback) {
      word.text += fallback;
    } else {
      word.unset = "$" + name;
    }
  }

  void take(std::string& into) {
    into += text_[at_];
    step();
  }

  // NAME=value is remembered, and is no word.
  bool assign(const ShellWord& word) {
    const size_t equals = word.text.find('=');
    if (equals == std::string::npos || equals == 0) return false;
    for (size_t i = 0; i < equals; ++i) {
      if (!is_name(word.text[i])) return false;
    }
    if (std::isdigit(static_cast<unsigned char>(word.text[0]))) return false;
    const std::string name = word.text.substr(0, equals);
    if (word.unset.empty()) {
      variables_[name] = word.text.substr(equals + 1);
    } else {
      variables_.erase(name);
    }
    return true;
  }

  std::string_view text_;
  int source_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int line_ = 1;
  std::map<std::string, std::string> variables_;
  std::vector<ShellWord> words_;
};

}  // namespace

std::vector<ShellWord> shell_words(std::string_view text, int source) {
  return Scanner(text, source).scan();
}

}  // namespace smp
