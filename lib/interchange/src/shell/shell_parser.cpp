#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "shell/shell_lexer.h"
#include "shell/shell_syntax.h"

namespace smp::shell {
namespace {

constexpr int kMostDeepSyntax = 40;
constexpr std::array<std::string_view, 12> kClosingWords = {
    "then", "fi", "else", "elif", "do", "done", "esac", "}", ")", ";;", ";&", ";;&"};

class ShellParser {
 public:
  explicit ShellParser(const ShellText& text) : lexer_(text) { advance(); }

  ShellCommand parse() {
    ShellCommand list = parse_list();
    if (token_.kind != ShellToken::Kind::kEnd) refuse("unexpected " + described());
    fill(list);
    return list;
  }

 private:
  void advance() {
    token_ = lexer_.next();
    if (token_.here_document >= 0) here_documents_ = true;
  }

  [[noreturn]] void refuse(std::string message) const {
    throw ShellError{token_.at, std::move(message)};
  }

  bool is_operator(std::string_view op) const {
    return token_.kind == ShellToken::Kind::kOperator && token_.op == op;
  }

  // A word without quotes and expansions, as reserved words are.
  std::string bare() const {
    if (token_.kind != ShellToken::Kind::kWord || token_.word.is_array ||
        token_.word.parts.size() != 1)
      return "";
    const ShellPart& part = token_.word.parts[0];
    return part.kind == ShellPart::Kind::kText && !part.quoted && !doubt_in(part.text)
               ? plain_text(part.text)
               : "";
  }

  std::string described() const {
    switch (token_.kind) {
      case ShellToken::Kind::kEnd: return "the end";
      case ShellToken::Kind::kNewline: return "the end of the line";
      case ShellToken::Kind::kOperator: return fmt::format("'{}'", token_.op);
      case ShellToken::Kind::kArithmetic: return "'(('";
      case ShellToken::Kind::kWord: return fmt::format("'{}'", bare());
    }
    return "";
  }

  bool at_end_of_list() const {
    if (token_.kind == ShellToken::Kind::kEnd) return true;
    const std::string word = token_.kind == ShellToken::Kind::kOperator ? token_.op : bare();
    return std::ranges::count(kClosingWords, word) > 0;
  }

  bool take(std::string_view word) {
    const bool there = is_operator(word) || bare() == word;
    if (there) advance();
    return there;
  }

  void expect(std::string_view word, std::string_view of) {
    if (!take(word)) refuse(fmt::format("expected '{}' of {}, found {}", word, of, described()));
  }

  void skip_newlines() {
    while (token_.kind == ShellToken::Kind::kNewline) advance();
  }

  ShellCommand parse_list() {
    if (++depth_ > kMostDeepSyntax)
      refuse(fmt::format("nested more than {} levels deep", kMostDeepSyntax));
    ShellCommand list{.kind = ShellCommand::Kind::kList, .at = token_.at};
    while (true) {
      bool cut_short = false;
      while (token_.kind == ShellToken::Kind::kNewline || is_operator(";")) {
        cut_short = cut_short || token_.cut_short;
        advance();
      }
      if (at_end_of_list()) break;
      if (join(list, cut_short)) continue;
      list.children.push_back(parse_and_or());
      if (is_operator("&") || is_operator(";")) {
        advance();
      } else if (token_.kind != ShellToken::Kind::kNewline && !at_end_of_list()) {
        refuse("unexpected " + described());
      }
    }
    --depth_;
    return list;
  }

  // No command begins with "--": flags on lines of their own go on with the command before them.
  bool join(ShellCommand& list, bool cut_short) {
    if (token_.kind != ShellToken::Kind::kWord || token_.word.parts.empty() ||
        list.children.empty())
      return false;
    const ShellPart& first = token_.word.parts[0];
    if (first.kind != ShellPart::Kind::kText || !plain_text(first.text).starts_with("--"))
      return false;
    ShellCommand* last = &list.children.back();
    while (last->kind == ShellCommand::Kind::kAndOr ||
           last->kind == ShellCommand::Kind::kPipeline) {
      last = &last->children.back();
    }
    if (last->kind != ShellCommand::Kind::kSimple) return false;
    if (cut_short) {
      refuse(
          "a comment ended the continued command above, so a shell does not pass the words from "
          "here on to the command: move the comment");
    }
    last->joined = true;
    ShellCommand more = parse_simple();
    std::ranges::move(more.words, std::back_inserter(last->words));
    std::ranges::move(more.here_documents, std::back_inserter(last->here_documents));
    while (is_operator("|") || is_operator("|&") || is_operator("&&") || is_operator("||")) {
      advance();
      skip_newlines();
      parse_pipeline();
    }
    return true;
  }

  ShellCommand parse_and_or() {
    ShellCommand first = parse_pipeline();
    if (!is_operator("&&") && !is_operator("||")) return first;
    ShellCommand out{.kind = ShellCommand::Kind::kAndOr, .at = first.at};
    out.children.push_back(std::move(first));
    while (is_operator("&&") || is_operator("||")) {
      out.operators.push_back(token_.op);
      advance();
      skip_newlines();
      out.children.push_back(parse_pipeline());
    }
    return out;
  }

  ShellCommand parse_pipeline() {
    if (bare() == "time") advance();
    if (bare() == "!") {
      if (++depth_ > kMostDeepSyntax)
        refuse(fmt::format("nested more than {} levels deep", kMostDeepSyntax));
      ShellCommand out{.kind = ShellCommand::Kind::kNot, .at = token_.at};
      advance();
      out.children.push_back(parse_pipeline());
      --depth_;
      return out;
    }
    ShellCommand first = parse_command();
    if (!is_operator("|") && !is_operator("|&")) return first;
    ShellCommand out{.kind = ShellCommand::Kind::kPipeline, .at = first.at};
    out.children.push_back(std::move(first));
    while (take("|") || take("|&")) {
      skip_newlines();
      out.children.push_back(parse_command());
    }
    return out;
  }

  ShellCommand parse_command() {
    const uint32_t at = token_.at;
    const std::string word = bare();
    ShellCommand out;
    if (token_.kind == ShellToken::Kind::kArithmetic) {
      out = {.kind = ShellCommand::Kind::kArithmetic, .at = at};
      out.words.push_back(token_.word);
      advance();
    } else if (is_operator("(")) {
      advance();
      out = {.kind = ShellCommand::Kind::kSubshell, .at = at};
      out.children.push_back(parse_list());
      expect(")", "this (");
    } else if (word == "{") {
      advance();
      out = parse_list();
      expect("}", "this {");
    } else if (word == "if") {
      out = parse_if();
    } else if (word == "case") {
      out = parse_case();
    } else if (word == "for" || word == "select" || word == "while" || word == "until") {
      out = parse_loop(word);
    } else if (word == "[[") {
      out = parse_test();
    } else if (word == "function") {
      advance();
      out = {.kind = ShellCommand::Kind::kFunction, .at = at, .name = bare()};
      advance();
      if (take("(")) expect(")", "this function");
      return parse_body(std::move(out));
    } else if (word == "coproc") {
      refuse("coproc is not supported");
    } else {
      return parse_simple();
    }
    out.at = at;
    while (is_redirection()) redirect(out);
    return out;
  }

  ShellCommand parse_body(ShellCommand function) {
    if (function.name.empty()) refuse("a function without a name");
    skip_newlines();
    if (++depth_ > kMostDeepSyntax)
      refuse(fmt::format("nested more than {} levels deep", kMostDeepSyntax));
    function.children.push_back(parse_command());
    --depth_;
    return function;
  }

  bool is_redirection() const {
    return token_.kind == ShellToken::Kind::kOperator &&
           token_.op.find_first_of("<>") != std::string::npos;
  }

  // Where a command reads and writes does not matter; here-documents are kept.
  void redirect(ShellCommand& command) {
    if (token_.here_document >= 0) {
      // The text follows the line: it is filled in at the end.
      ShellChar mark;
      mark.at = static_cast<uint32_t>(token_.here_document);
      command.here_documents.push_back({mark});
      advance();
      return;
    }
    advance();
    if (token_.kind != ShellToken::Kind::kWord) refuse("a redirection without a file");
    advance();
  }

  ShellCommand parse_simple() {
    ShellCommand out{.kind = ShellCommand::Kind::kSimple, .at = token_.at};
    while (true) {
      if (is_redirection()) {
        redirect(out);
      } else if (token_.kind == ShellToken::Kind::kWord) {
        const std::string word = bare();
        out.words.push_back(std::move(token_.word));
        advance();
        if (out.words.size() == 1 && is_operator("(") && !word.empty()) {
          advance();
          expect(")", fmt::format("{}(", word));
          return parse_body({.kind = ShellCommand::Kind::kFunction, .at = out.at, .name = word});
        }
      } else {
        break;
      }
    }
    if (out.words.empty() && out.here_documents.empty() && is_operator("(")) {
      refuse("unexpected '('");
    }
    if (out.words.empty() && out.here_documents.empty() && !at_end_of_list() &&
        token_.kind == ShellToken::Kind::kOperator) {
      refuse("unexpected " + described());
    }
    return out;
  }

  ShellCommand parse_if() {
    ShellCommand out{.kind = ShellCommand::Kind::kIf, .at = token_.at};
    advance();
    while (true) {
      out.children.push_back(parse_list());
      expect("then", "this if");
      out.children.push_back(parse_list());
      if (take("elif")) continue;
      if (take("else")) out.children.push_back(parse_list());
      expect("fi", "this if");
      return out;
    }
  }

  ShellCommand parse_case() {
    ShellCommand out{.kind = ShellCommand::Kind::kCase, .at = token_.at};
    advance();
    if (token_.kind != ShellToken::Kind::kWord) refuse("this case has no word");
    out.words.push_back(token_.word);
    advance();
    skip_newlines();
    expect("in", "this case");
    skip_newlines();
    while (bare() != "esac") {
      take("(");
      out.patterns.emplace_back();
      do {
        if (token_.kind != ShellToken::Kind::kWord) {
          refuse(fmt::format("expected a pattern of a case, found {}", described()));
        }
        out.patterns.back().push_back(token_.word);
        advance();
      } while (take("|"));
      expect(")", "a pattern of this case");
      out.children.push_back(parse_list());
      if (is_operator(";&") || is_operator(";;&"))
        refuse(fmt::format("{} is not supported", token_.op));
      if (!take(";;")) break;
      skip_newlines();
    }
    expect("esac", "this case");
    return out;
  }

  ShellCommand parse_loop(const std::string& word) {
    ShellCommand out{.kind = ShellCommand::Kind::kLoop, .at = token_.at};
    advance();
    if (word == "while" || word == "until") {
      out.children.push_back(parse_list());
    } else if (token_.kind == ShellToken::Kind::kArithmetic) {  // for ((i = 0; ...))
      out.words.push_back(token_.word);
      advance();
      take(";");
    } else {
      out.name = bare();
      if (!is_shell_name(out.name)) refuse("this for has no name");
      advance();
      skip_newlines();
      if (take("in")) {
        while (token_.kind == ShellToken::Kind::kWord) {
          out.words.push_back(token_.word);
          advance();
        }
      }
      take(";");
    }
    skip_newlines();
    expect("do", "this loop");
    out.children.push_back(parse_list());
    expect("done", "this loop");
    return out;
  }

  ShellCommand parse_test() {
    ShellCommand out{.kind = ShellCommand::Kind::kTest, .at = token_.at};
    advance();
    while (bare() != "]]") {
      if (token_.kind == ShellToken::Kind::kEnd)
        throw ShellError{out.at, "]] is missing for this [["};
      if (token_.kind == ShellToken::Kind::kWord || token_.kind == ShellToken::Kind::kArithmetic) {
        out.words.push_back(token_.word);
      } else if (token_.kind == ShellToken::Kind::kOperator) {
        ShellWordSyntax word;
        word.at = token_.at;
        ShellPart part{.at = token_.at};
        part.text = shell_text(token_.op);
        for (ShellChar& c : part.text) c.at = token_.at;
        word.parts.push_back(std::move(part));
        out.words.push_back(std::move(word));
      }
      advance();
    }
    advance();
    return out;
  }

  // The texts of here-documents, which follow the lines that name them.
  void fill(ShellCommand& command) const {
    if (!here_documents_) return;
    for (ShellText& text : command.here_documents) {
      if (text.size() == 1) text = lexer_.here_document(static_cast<int>(text[0].at));
    }
    for (ShellCommand& child : command.children) fill(child);
  }

  ShellLexer lexer_;
  ShellToken token_;
  int depth_ = 0;
  bool here_documents_ = false;
};

}  // namespace

ShellCommand parse_shell(const ShellText& text) { return ShellParser(text).parse(); }

}  // namespace smp::shell
