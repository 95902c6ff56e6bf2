#include "shell/shell_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace smp::shell {
namespace {

constexpr int kMostNestedWords = 24;

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

// NAME= or NAME+=, of a word so far.
bool begins_assignment(const std::vector<ShellPart>& parts) {
  if (parts.size() != 1 || parts[0].kind != ShellPart::Kind::kText || parts[0].quoted) return false;
  std::string text = plain_text(parts[0].text);
  if (!text.ends_with('=')) return false;
  text.pop_back();
  if (text.ends_with('+')) text.pop_back();
  return is_shell_name(text);
}

}  // namespace

char ShellLexer::peek(size_t ahead) const { return done(ahead) ? '\0' : text_[at_ + ahead].c; }

bool ShellLexer::at(std::string_view word) const {
  for (size_t i = 0; i < word.size(); ++i) {
    if (peek(i) != word[i]) return false;
  }
  return true;
}

uint32_t ShellLexer::place() const {
  if (text_.empty()) return 0;
  return done() ? text_.back().at + 1 : text_[at_].at;
}

std::string ShellLexer::shown(size_t begin) const {
  constexpr size_t kMost = 40;
  std::string out;
  for (size_t i = begin; i < at_ && i < text_.size(); ++i) {
    const char c = text_[i].c;
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    if (out.size() == kMost) return out + "...";
  }
  return out;
}

void ShellLexer::refuse(size_t at, std::string message) const {
  throw ShellError{at < text_.size() ? text_[at].at : place(), std::move(message)};
}

bool ShellLexer::skip_blanks() {
  bool continued = false;
  while (!done()) {
    if (peek() == ' ' || peek() == '\t') {
      ++at_;
    } else if (peek() == '\\' && peek(1) == '\n') {
      at_ += 2;
      continued = true;
    } else {
      break;
    }
  }
  return continued;
}

ShellToken ShellLexer::next() {
  const bool continued = skip_blanks();
  bool cut_short = false;
  if (peek() == '#') {
    while (!done() && peek() != '\n') ++at_;
    cut_short = continued;
  }
  if (done()) return {.kind = ShellToken::Kind::kEnd, .at = place()};
  if (peek() == '\n') return newline(cut_short);
  if (at("((")) return arithmetic_token();
  const bool process = (at("<(") || at(">("));
  if (!process && std::string_view(";&|()<>").find(peek()) != std::string_view::npos &&
      text_[at_].kind == ShellChar::Kind::kPlain) {
    return operator_token();
  }
  // 2> and 2< : the number is the redirection's.
  size_t digits = 0;
  while (is_digit_char(peek(digits))) ++digits;
  if (digits > 0 && (peek(digits) == '<' || peek(digits) == '>')) {
    at_ += digits;
    return operator_token();
  }
  ShellToken token{.kind = ShellToken::Kind::kWord, .at = place()};
  token.word = word();
  return token;
}

ShellToken ShellLexer::newline(bool cut_short) {
  ShellToken token{.kind = ShellToken::Kind::kNewline, .at = place(), .cut_short = cut_short};
  ++at_;
  for (const size_t number : pending_) {
    HereDocument& document = here_documents_[number];
    while (!done()) {
      size_t end = at_;
      while (end < text_.size() && text_[end].c != '\n') ++end;
      ShellText line(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                     text_.begin() + static_cast<std::ptrdiff_t>(end));
      at_ = std::min(end + 1, text_.size());
      std::string plain = plain_text(line);
      if (document.strip) plain.erase(0, std::min(plain.find_first_not_of('\t'), plain.size()));
      if (plain == document.end) break;
      document.text.insert(document.text.end(), line.begin(), line.end());
      document.text.push_back({.c = '\n', .at = token.at});
    }
  }
  pending_.clear();
  return token;
}

ShellToken ShellLexer::operator_token() {
  static constexpr std::array<std::string_view, 20> kOperators = {
      ";;&", "<<<", "<<-", "&>>", ";;", ";&", "&&", "||", "|&", "<<",
      ">>",  "<&",  ">&",  "&>",  "<>", ">|", ";",  "&",  "|",  "("};
  ShellToken token{.kind = ShellToken::Kind::kOperator, .at = place()};
  for (const std::string_view op : kOperators) {
    if (!at(op)) continue;
    token.op = op;
    break;
  }
  if (token.op.empty()) token.op = std::string(1, peek());  // ) < >
  at_ += token.op.size();
  if (token.op == "<<" || token.op == "<<-") begin_here_document(token);
  return token;
}

void ShellLexer::begin_here_document(ShellToken& token) {
  skip_blanks();
  const size_t begin = at_;
  const ShellWordSyntax end = word();
  std::string text;
  for (const ShellPart& part : end.parts) {
    if (part.kind != ShellPart::Kind::kText)
      refuse(begin, "the word that ends this here-document is not a plain word");
    text += plain_text(part.text);
  }
  if (text.empty()) refuse(begin, "this here-document has no word that ends it");
  token.here_document = static_cast<int>(here_documents_.size());
  pending_.push_back(here_documents_.size());
  here_documents_.push_back({text, token.op == "<<-", {}});
}

// (( ... )), up to the parentheses that close it.
ShellToken ShellLexer::arithmetic_token() {
  ShellToken token{.kind = ShellToken::Kind::kArithmetic, .at = place()};
  const size_t begin = at_;
  skip_parentheses();
  ShellPart part{.kind = ShellPart::Kind::kArithmetic, .at = token.at};
  part.shown = shown(begin);
  if (at_ < begin + 4 || text_[at_ - 2].c != ')') refuse(begin, "'))' is missing for this '(('");
  part.text.assign(text_.begin() + static_cast<std::ptrdiff_t>(begin) + 2,
                   text_.begin() + static_cast<std::ptrdiff_t>(at_) - 2);
  token.word.at = token.at;
  token.word.parts.push_back(std::move(part));
  return token;
}

ShellWordSyntax ShellLexer::word() {
  ShellWordSyntax out;
  out.at = place();
  while (!done()) {
    if (text_[at_].kind == ShellChar::Kind::kPlain) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\n') break;
      if ((c == '<' || c == '>') && peek(1) == '(' && out.parts.empty()) {
        const size_t begin = at_++;
        skip_parentheses();
        out.parts.push_back(
            {.kind = ShellPart::Kind::kCommand, .at = text_[begin].at, .shown = shown(begin)});
        continue;
      }
      if (c == '<' && begins_assignment(out.parts) && placeholder(out.parts)) continue;
      if (c == '(' && begins_assignment(out.parts)) {
        array(out);
        break;
      }
      if (std::string_view(";&|()<>").find(c) != std::string_view::npos) {
        // A[$i]=, ?(pattern) and function() all end here, but a=( does not.
        break;
      }
      if (c == '\\' && peek(1) == '\n') break;
    }
    part(out.parts, false);
  }
  return out;
}

// NAME=<path of the data>, as examples have it for their readers to fill in.
bool ShellLexer::placeholder(std::vector<ShellPart>& parts) {
  size_t end = at_;
  while (end < text_.size() && text_[end].c != '>' && text_[end].c != '\n') ++end;
  if (end == text_.size() || text_[end].c != '>') return false;
  const size_t begin = at_;
  at_ = end + 1;
  parts.push_back(
      {.kind = ShellPart::Kind::kCommand, .at = text_[begin].at, .shown = shown(begin)});
  return true;
}

void ShellLexer::append(std::vector<ShellPart>& parts, ShellChar c, bool quoted) const {
  if (parts.empty() || parts.back().kind != ShellPart::Kind::kText ||
      parts.back().quoted != quoted) {
    parts.push_back({.kind = ShellPart::Kind::kText, .quoted = quoted, .at = c.at});
  }
  c.quoted = quoted;
  parts.back().text.push_back(c);
}

// One character, or what a quote, a backslash or a $ begins.
void ShellLexer::part(std::vector<ShellPart>& parts, bool quoted) {
  const ShellChar c = text_[at_];
  if (c.kind != ShellChar::Kind::kPlain) {
    append(parts, c, quoted);
    ++at_;
  } else if (c.c == '\\') {
    const bool escapes =
        !quoted || std::string_view("$`\"\\\n").find(peek(1)) != std::string_view::npos;
    if (!escapes || done(1)) {
      append(parts, c, quoted);
      ++at_;
    } else {
      if (peek(1) != '\n') append(parts, text_[at_ + 1], true);
      at_ += 2;
    }
  } else if (c.c == '$') {
    dollar(parts, quoted);
  } else if (c.c == '`') {
    const size_t begin = at_;
    skip_backquotes();
    if (text_[begin + 1].c == '#') return;  // a comment inside a line
    parts.push_back(
        {.kind = ShellPart::Kind::kCommand, .quoted = quoted, .at = c.at, .shown = shown(begin)});
  } else if (!quoted && (c.c == '\'' || c.c == '"')) {
    quotes(parts);
  } else {
    append(parts, c, quoted);
    ++at_;
  }
}

void ShellLexer::quotes(std::vector<ShellPart>& parts) {
  const size_t begin = at_;
  const char quote = peek();
  ++at_;
  const size_t before = parts.size();
  const size_t inside = at_;
  while (!done() && (peek() != quote || text_[at_].kind != ShellChar::Kind::kPlain)) {
    if (quote == '\'') {
      append(parts, text_[at_++], true);
    } else {
      part(parts, true);
    }
  }
  if (done()) refuse(begin, fmt::format("this {} is not closed", quote));
  if (at_ == inside && parts.size() == before) {
    parts.push_back({.kind = ShellPart::Kind::kText, .quoted = true, .at = text_[begin].at});
  }
  ++at_;
}

// The text of $'...'; false where it has an escape by number.
bool ShellLexer::unescaped(size_t begin, size_t end, ShellText& out) const {
  constexpr std::string_view kNames = "abefnrtv\\'\"", kMeant = "\a\b\x1b\f\n\r\t\v\\'\"";
  for (size_t i = begin; i < end; ++i) {
    ShellChar c = text_[i];
    if (c.kind == ShellChar::Kind::kPlain && c.c == '\\' && i + 1 < end) {
      const size_t known = kNames.find(text_[++i].c);
      if (known == kNames.npos) return false;
      c.c = kMeant[known];
    }
    c.quoted = true;
    out.push_back(c);
  }
  return true;
}

void ShellLexer::dollar(std::vector<ShellPart>& parts, bool quoted) {
  const size_t begin = at_;
  ShellPart part{.kind = ShellPart::Kind::kVariable, .quoted = quoted, .at = text_[begin].at};
  const char after = peek(1);
  if (!quoted && (after == '\'' || after == '"')) {  // $'...' and $"..."
    ++at_;
    if (after == '"') return quotes(parts);
    ++at_;
    const size_t first = at_;
    while (!done() && peek() != '\'') at_ += peek() == '\\' ? 2 : 1;
    if (done()) refuse(begin, "this $' is not closed");
    part.quoted = true;
    part.kind =
        unescaped(first, at_, part.text) ? ShellPart::Kind::kText : ShellPart::Kind::kCommand;
    ++at_;
  } else if (after == '(') {
    ++at_;
    const size_t open = at_;
    skip_parentheses();
    const bool arithmetic = text_[open + 1].c == '(' && at_ >= open + 4 && text_[at_ - 2].c == ')';
    part.kind = arithmetic ? ShellPart::Kind::kArithmetic : ShellPart::Kind::kCommand;
    if (arithmetic) {
      part.text.assign(text_.begin() + static_cast<std::ptrdiff_t>(open) + 2,
                       text_.begin() + static_cast<std::ptrdiff_t>(at_) - 2);
    }
  } else if (after == '{') {
    at_ += 2;
    braces(part);
  } else if (is_name_char(after) && !is_digit_char(after)) {
    ++at_;
    while (!done() && is_name_char(peek())) part.name += text_[at_++].c;
  } else if (after != 0 && std::string_view("@*#?$!-0123456789").find(after) < 17) {
    part.name = std::string(1, after);
    at_ += 2;
  } else {
    append(parts, text_[at_], quoted);
    ++at_;
    return;
  }
  part.shown = shown(begin);
  parts.push_back(std::move(part));
}

// Behind "${": a name, an index, an operator and its word.
void ShellLexer::braces(ShellPart& part) {
  const size_t begin = at_ - 2;
  if (++depth_ > kMostNestedWords)
    refuse(begin, fmt::format("nested more than {} levels deep", kMostNestedWords));
  if (peek() == '#' && (is_name_char(peek(1)))) {
    part.op = "#";
    ++at_;
  }
  while (!done() && is_name_char(peek())) part.name += text_[at_++].c;
  if (part.name.empty() && !done() && std::string_view("@*#?$-").find(peek()) < 6 && peek() != 0) {
    part.name = std::string(1, text_[at_++].c);
  }
  if (peek() == '[' && !part.name.empty()) {
    ++at_;
    while (!done() && peek() != ']' && peek() != '\n') part.index += text_[at_++].c;
    if (peek() == ']') ++at_;
  }
  bool read = !part.name.empty();
  if (peek() != '}' && read) {
    const size_t length = peek() == ':' ? 2 : 1;
    const std::string op = peek() == ':' ? std::string(":") + peek(1) : std::string(1, peek());
    read = part.op.empty() && op.size() == length && op.find_first_of("-=+?") == length - 1;
    if (read) {
      part.op = op;
      at_ += length;
      while (!done() && peek() != '}') {
        if (part.quoted && peek() == '"') {  // quotes of its own inside quotes
          quotes(part.word);
        } else {
          this->part(part.word, part.quoted);
        }
      }
    }
  }
  if (!read) {
    part.kind = ShellPart::Kind::kCommand;  // patterns, substrings, other names: not read
    int open = 1;
    while (!done()) {
      if (peek() == '\\') {
        at_ = std::min(at_ + 2, text_.size());
        continue;
      }
      if (peek() == '{') ++open;
      if (peek() == '}' && --open == 0) break;
      ++at_;
    }
  }
  if (done()) refuse(begin, "this ${ is not closed");
  ++at_;
  --depth_;
}

// Skips from an open parenthesis to behind its closing one.
void ShellLexer::skip_parentheses() {
  const size_t begin = at_;
  int open = 0;
  while (!done()) {
    const char c = peek();
    if (c == '\\') {
      at_ = std::min(at_ + 2, text_.size());
      continue;
    }
    if (c == '\'' || c == '"') {
      ++at_;
      while (!done() && peek() != c) {
        at_ = std::min(at_ + (c == '"' && peek() == '\\' ? 2 : 1), text_.size());
      }
    }
    if (c == '(') ++open;
    if (c == ')') --open;
    if (!done()) ++at_;
    if (open == 0) return;
  }
  refuse(begin, "this ( is not closed");
}

void ShellLexer::skip_backquotes() {
  const size_t begin = at_++;
  while (!done() && peek() != '`') at_ = std::min(at_ + (peek() == '\\' ? 2 : 1), text_.size());
  if (done()) refuse(begin, "this ` is not closed");
  ++at_;
}

void ShellLexer::array(ShellWordSyntax& word) {
  const size_t begin = at_++;
  if (++depth_ > kMostNestedWords)
    refuse(begin, fmt::format("nested more than {} levels deep", kMostNestedWords));
  word.is_array = true;
  while (true) {
    skip_blanks();
    if (done()) refuse(begin, "this ( is not closed");
    if (peek() == '\n') {
      ++at_;
    } else if (peek() == '#') {
      while (!done() && peek() != '\n') ++at_;
    } else if (peek() == ')') {
      ++at_;
      --depth_;
      return;
    } else {
      const size_t before = at_;
      word.items.push_back(this->word());
      if (at_ == before) refuse(at_, fmt::format("'{}' is not supported in an array", peek()));
    }
  }
}

std::vector<ShellPart> ShellLexer::parts_of(const ShellText& text, bool quoted, int depth) {
  ShellLexer lexer(text);
  lexer.depth_ = depth;
  std::vector<ShellPart> parts;
  while (!lexer.done()) lexer.part(parts, quoted);
  return parts;
}

}  // namespace smp::shell
