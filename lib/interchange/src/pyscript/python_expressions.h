#pragma once

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pyscript/python_tokens.h"
#include "pyscript/python_value.h"
#include "smp/plan/text/yaml_tree.h"

namespace smp::pyscript {

template <size_t n>
bool is_among(const std::array<std::string_view, n>& words, std::string_view word) {
  return std::ranges::count(words, word) > 0;
}

// Words that continue or begin an expression in a form that is not read.
inline constexpr std::array<std::string_view, 12> kExpressionWords = {
    "if", "else", "and", "or", "not", "in", "is", "for", "lambda", "await", "yield", "async"};

// Reads the expressions of one line of tokens, and their values. Other text is skipped to its end,
// and its value is unknown. Base of the reader of lines.
class PythonExpressions {
 protected:
  using Kind = PythonValue::Kind;
  using Token = PythonToken;

  explicit PythonExpressions(std::string_view source) : source_(source) {}

  // --- values

  PythonValue* make(Kind kind, text::Place place) {
    script_.values.emplace_back();
    PythonValue& value = script_.values.back();
    value.kind = kind;
    value.place = place;
    return &value;
  }
  PythonValue* unknown(text::Place place, std::string why) {
    PythonValue* value = make(Kind::kUnknown, place);
    value->text = std::move(why);
    return value;
  }
  PythonValue* unread(size_t begin) {
    const Token& first = token(begin);
    const size_t last = std::max(begin, at_ > 0 ? at_ - 1 : 0);
    const size_t end = (*tokens_)[std::min(last, tokens_->size() - 1)].end;
    const std::string_view text = source_.substr(first.begin, end - first.begin);
    return unknown(first.place, text::quoted_for_message(text.substr(0, text.find('\n'))) +
                                    ", which smp does not evaluate");
  }
  static bool holds_values(const PythonValue& value) {
    return value.kind == Kind::kMap || value.kind == Kind::kList;
  }
  static void forget(PythonValue* value, std::string why) {
    value->kind = Kind::kUnknown;
    value->text = std::move(why);
  }

  // --- the tokens of the line

  const Token& token(size_t at) const {
    static const Token kEnd;
    return at < tokens_->size() ? (*tokens_)[at] : kEnd;
  }
  bool ends() const { return at_ >= tokens_->size(); }
  bool is_sign(std::string_view sign, size_t ahead = 0) const {
    return is_sign_at(at_ + ahead, sign);
  }
  bool is_sign_at(size_t at, std::string_view sign) const {
    return token(at).kind == Token::Kind::kSign && token(at).text == sign;
  }
  bool take(std::string_view sign) {
    if (!is_sign(sign)) return false;
    ++at_;
    return true;
  }
  bool is_name(size_t at) const { return token(at).kind == Token::Kind::kName; }
  bool closes(size_t at) const {
    return is_sign_at(at, ")") || is_sign_at(at, "]") || is_sign_at(at, "}");
  }
  bool opens(size_t at) const {
    return is_sign_at(at, "(") || is_sign_at(at, "[") || is_sign_at(at, "{");
  }

  // To the end of the expression: a comma or a bracket that closes what is around it.
  void skip(bool stops_at_colon) {
    for (int depth = 0; !ends(); ++at_) {
      if (depth == 0 && (is_sign(",") || closes(at_) || (stops_at_colon && is_sign(":")))) return;
      if (opens(at_)) ++depth;
      if (closes(at_)) --depth;
    }
  }
  // Behind the bracket that closes what is open.
  void skip_closing() {
    while (!ends() && !closes(at_)) {
      skip(false);
      take(",");
    }
    if (!ends()) ++at_;
  }

  // --- expressions

  PythonValue* expression(bool stops_at_colon = false);

  // Operators of one precedence, from the left.
  template <size_t n, typename Part>
  PythonValue* chain(const std::array<std::string_view, n>& signs, const Part& part) {
    PythonValue* left = part();
    while (token(at_).kind == Token::Kind::kSign && is_among(signs, token(at_).text)) {
      const std::string sign = token(at_++).text;
      left = binary(left, sign, part());
    }
    return left;
  }

  PythonValue* sum();

  PythonValue* product();

  PythonValue* signed_value();

  // One more level of nested powers, up to a limit. (The lexer limits brackets.)
  template <typename Part>
  PythonValue* deeper(const Part& part) {
    constexpr int kMostDepth = 100;
    const text::Place place = token(at_).place;
    if (depth_ >= kMostDepth) {
      skip(false);
      return unknown(place, "an expression that nests too deeply to import");
    }
    ++depth_;
    PythonValue* value = part();
    --depth_;
    return value;
  }

  PythonValue* binary(PythonValue* left, std::string_view sign, PythonValue* right);

  PythonValue* postfix();

  PythonValue* copy_of(const PythonValue* map, text::Place place);

  PythonValue* item_of(const PythonValue* value, const PythonValue* key, size_t begin);

  PythonValue* call(const std::string& called, size_t begin);

  // The value of a call, for a few functions; for all others the call itself.
  PythonValue* result_of(PythonValue* call, size_t begin);

  static std::vector<PythonValue*> arguments_of(const PythonValue& call);

  static void put(PythonValue& map, const PythonEntry& entry);

  // `**other` in a dictionary or a call.
  static void spread(PythonValue& into, text::Place place, PythonValue* other);

  PythonValue* atom();

  // Texts beside each other are one.
  PythonValue* text();

  PythonValue* name();

  PythonValue* sequence(std::string_view closing);

  PythonValue* map();

  std::string_view source_;
  PythonScript script_;
  std::set<std::string> defined_;  // functions and classes of the script
  const std::vector<Token>* tokens_ = nullptr;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace smp::pyscript
