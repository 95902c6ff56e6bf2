#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shell/shell_syntax.h"

namespace smp::shell {

struct ShellToken {
  enum class Kind { kWord, kOperator, kNewline, kArithmetic, kEnd };
  Kind kind = Kind::kEnd;
  uint32_t at = 0;
  std::string op = {};
  ShellWordSyntax word = {};
  int here_document = -1;  // of << and <<-
  bool cut_short = false;  // a newline: a comment ended a line that a backslash had continued
};

// The words and operators of a script, one at a time. Throws ShellError.
class ShellLexer {
 public:
  explicit ShellLexer(const ShellText& text) : text_(text) {}

  ShellToken next();
  // Reads the body of `here_document`, after the newline behind it.
  const ShellText& here_document(int number) const {
    return here_documents_.at(static_cast<size_t>(number)).text;
  }
  // The parts of a text in double quotes, as in arithmetic and in the words behind ${NAME:-.
  static std::vector<ShellPart> parts_of(const ShellText& text, bool quoted, int depth);

 private:
  struct HereDocument {
    std::string end;
    bool strip = false;
    ShellText text;
  };

  bool done(size_t ahead = 0) const { return at_ + ahead >= text_.size(); }
  char peek(size_t ahead = 0) const;  // 0 at the end and for what is not known
  bool at(std::string_view word) const;
  uint32_t place() const;
  std::string shown(size_t begin) const;
  [[noreturn]] void refuse(size_t at, std::string message) const;

  bool skip_blanks();  // whether a backslash continued the line
  ShellToken newline(bool cut_short);
  ShellToken operator_token();
  ShellToken arithmetic_token();
  void begin_here_document(ShellToken& token);
  ShellWordSyntax word();
  void part(std::vector<ShellPart>& parts, bool quoted);
  void append(std::vector<ShellPart>& parts, ShellChar c, bool quoted) const;
  bool placeholder(std::vector<ShellPart>& parts);
  void quotes(std::vector<ShellPart>& parts);
  bool unescaped(size_t begin, size_t end, ShellText& out) const;
  void dollar(std::vector<ShellPart>& parts, bool quoted);
  void braces(ShellPart& part);
  void skip_parentheses();
  void skip_backquotes();
  void array(ShellWordSyntax& word);

  const ShellText& text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<HereDocument> here_documents_;
  std::vector<size_t> pending_;
};

}  // namespace smp::shell
