#include "pyscript/python_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "smp/plan/text/yaml_tree.h"

// Source: docs.python.org/3/reference/lexical_analysis.html
namespace smp::pyscript {
namespace {

bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The longest first.
constexpr std::array<std::string_view, 26> kSigns = {
    "**=", "//=", "<<=", ">>=", "...", "**", "//", "<<", ">>", "<=", ">=", "==", "!=",
    "->",  ":=",  "+=",  "-=",  "*=",  "/=", "%=", "&=", "|=", "^=", "@=", "@",  ";"};

class PythonLexer {
 public:
  PythonLexer(std::string_view text, int source, text::Diagnostics& diagnostics)
      : text_(text), source_(source), diagnostics_(diagnostics) {}

  std::vector<PythonLine> lines() {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) at_ = line_begin_ = kByteOrderMark.size();
    begin_line();
    while (!failed_ && at_ < text_.size()) step();
    if (!failed_ && !open_.empty()) {
      fail(open_.back().place, fmt::format("'{}' is never closed", open_.back().sign));
    }
    end_line();
    return std::move(lines_);
  }

 private:
  struct Open {
    char sign;
    text::Place place;
  };

  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  text::Place here() const { return {source_, line_, static_cast<int>(at_ - line_begin_) + 1}; }

  void fail(text::Place place, std::string message) {
    if (!failed_) diagnostics_.error(place, std::move(message));
    failed_ = true;
  }

  void newline() {
    ++at_;
    ++line_;
    line_begin_ = at_;
  }

  // The indentation of the logical line that begins here, and what is no Python of a notebook's.
  void begin_line() {
    indent_ = 0;
    for (; peek() == ' ' || peek() == '\t'; ++at_) {
      indent_ = peek() == '\t' ? (indent_ / 8 + 1) * 8 : indent_ + 1;
    }
    if (peek() == '%' || peek() == '!') skip_to_end();
  }

  void skip_to_end() {
    while (at_ < text_.size() && peek() != '\n') ++at_;
  }

  void end_line() {
    if (!tokens_.empty()) lines_.push_back({indent_, std::move(tokens_)});
    tokens_.clear();
  }

  void step() {
    const char c = peek();
    if (c == '\n') {
      newline();
      if (!open_.empty()) return;
      end_line();
      begin_line();
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f') {
      ++at_;
    } else if (c == '#') {
      skip_to_end();
    } else if (c == '\\') {
      ++at_;
      if (peek() == '\r') ++at_;
      if (peek() != '\n') return fail(here(), "unexpected '\\' outside of a string");
      newline();
    } else if (c == '"' || c == '\'' || begins_prefixed_text()) {
      text_token();
    } else if (begins_name(c)) {
      const size_t begin = at_;
      PythonToken token = start(PythonToken::Kind::kName);
      while (begins_name(peek()) || is_digit(peek())) ++at_;
      finish(std::move(token), std::string(text_.substr(begin, at_ - begin)));
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number_token();
    } else {
      sign_token();
    }
  }

  PythonToken start(PythonToken::Kind kind) const {
    PythonToken token;
    token.kind = kind;
    token.place = here();
    token.begin = at_;
    return token;
  }
  void finish(PythonToken token, std::string text) {
    token.text = std::move(text);
    token.end = at_;
    tokens_.push_back(std::move(token));
  }

  void number_token() {
    PythonToken token = start(PythonToken::Kind::kNumber);
    const bool hexadecimal = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_' || peek() == '.' ||
           (!hexadecimal && (peek() == '+' || peek() == '-') && at_ > token.begin &&
            (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E'))) {
      ++at_;
    }
    finish(std::move(token), std::string(text_.substr(token.begin, at_ - token.begin)));
  }

  size_t prefix_length() const {
    size_t length = 0;
    while (length < 2 &&
           std::string_view("rRbBuUfF").find(peek(length)) != std::string_view::npos &&
           peek(length) != '\0') {
      ++length;
    }
    return length;
  }
  bool begins_prefixed_text() const {
    const size_t length = prefix_length();
    return length > 0 && (peek(length) == '"' || peek(length) == '\'');
  }

  void text_token() {
    PythonToken token = start(PythonToken::Kind::kText);
    bool raw = false;
    for (size_t length = prefix_length(); length > 0; --length, ++at_) {
      const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(peek())));
      raw = raw || c == 'r';
      token.computed = token.computed || c == 'f' || c == 'b';
    }
    const char quote = peek();
    const bool triple = peek(1) == quote && peek(2) == quote;
    at_ += triple ? 3 : 1;
    std::string value;
    while (true) {
      if (at_ >= text_.size() || (peek() == '\n' && !triple)) {
        return fail(token.place, "this string is never closed");
      }
      if (peek() == quote && (!triple || (peek(1) == quote && peek(2) == quote))) break;
      if (peek() == '\\') {
        escape(value, raw, token);
      } else {
        value += peek();
        if (peek() == '\n') {
          newline();
        } else {
          ++at_;
        }
      }
    }
    at_ += triple ? 3 : 1;
    finish(std::move(token), std::move(value));
  }

  void escape(std::string& value, bool raw, PythonToken& token) {
    const char next = peek(1);
    ++at_;
    if (raw) value += '\\';
    if (next == '\n') {
      if (raw) value += '\n';
      return newline();
    }
    if (at_ < text_.size()) ++at_;
    constexpr std::string_view kNames = "\\'\"ntrabfv";
    constexpr std::string_view kMeanings = "\\'\"\n\t\r\a\b\f\v";
    const size_t known = kNames.find(next);
    if (raw) {
      value += next;
    } else if (known != std::string_view::npos) {
      value += kMeanings[known];
    } else {
      // Numbers of characters and their names.
      token.computed = token.computed || is_digit(next) || next == 'x' || next == 'u' ||
                       next == 'U' || next == 'N';
      value += '\\';
      value += next;
    }
  }

  void sign_token() {
    PythonToken token = start(PythonToken::Kind::kSign);
    const std::string_view rest = text_.substr(at_);
    const auto known = std::ranges::find_if(
        kSigns, [&](const std::string_view sign) { return rest.starts_with(sign); });
    const std::string sign(known != kSigns.end() ? *known : rest.substr(0, 1));
    if (sign.size() == 1 &&
        std::string_view("+-*/%&|^~<>()[]{},:.=@;").find(sign) == std::string_view::npos) {
      return fail(token.place, fmt::format("{} is not Python", text::quoted_for_message(sign)));
    }
    if (sign == ";" && open_.empty()) {
      ++at_;
      return end_line();
    }
    if (sign == "(" || sign == "[" || sign == "{") open_.push_back({sign[0], token.place});
    constexpr size_t kMostDepth = 64;
    if (open_.size() > kMostDepth) {
      return fail(token.place, fmt::format("nested more than {} levels deep", kMostDepth));
    }
    if (sign == ")" || sign == "]" || sign == "}") {
      const char begins = sign == ")" ? '(' : sign == "]" ? '[' : '{';
      if (open_.empty() || open_.back().sign != begins) {
        return fail(token.place, fmt::format("unmatched '{}'", sign));
      }
      open_.pop_back();
    }
    at_ += sign.size();
    finish(std::move(token), sign);
  }

  std::string_view text_;
  int source_;
  text::Diagnostics& diagnostics_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int line_ = 1;
  int indent_ = 0;
  bool failed_ = false;
  std::vector<Open> open_;  // brackets
  std::vector<PythonToken> tokens_;
  std::vector<PythonLine> lines_;
};

}  // namespace

std::vector<PythonLine> python_lines(std::string_view text, int source,
                                     text::Diagnostics& diagnostics) {
  return PythonLexer(text, source, diagnostics).lines();
}

}  // namespace smp::pyscript
