#include "python_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "python_arithmetic.h"
#include "python_tokens.h"

namespace smp {
namespace {

using Kind = PythonValue::Kind;
using Token = PythonToken;

constexpr std::array<std::string_view, 12> kBlocks = {"if",     "elif",    "else",  "for",
                                                      "while",  "def",     "class", "try",
                                                      "except", "finally", "with",  "async"};
constexpr std::array<std::string_view, 12> kSkipped = {"import", "from",   "pass",     "return",
                                                       "raise",  "assert", "global",   "break",
                                                       "yield",  "await",  "continue", "nonlocal"};
// Words that go on with an expression in ways that are not read, or begin one.
constexpr std::array<std::string_view, 12> kExpressionWords = {
    "if", "else", "and", "or", "not", "in", "is", "for", "lambda", "await", "yield", "async"};
// What changes a dictionary or a list, beside update().
constexpr std::array<std::string_view, 10> kChanges = {"pop",    "popitem", "setdefault", "clear",
                                                       "append", "extend",  "insert",     "remove",
                                                       "sort",   "reverse"};

template <size_t n>
bool is_among(const std::array<std::string_view, n>& words, std::string_view word) {
  return std::ranges::count(words, word) > 0;
}

class PythonReader {
 public:
  explicit PythonReader(std::string_view source) : source_(source) {}

  PythonScript run(const std::vector<PythonLine>& lines) {
    for (size_t i = 0; i < lines.size();) i = line(lines, i);
    return std::move(script_);
  }

 private:
  // --- values

  PythonValue* make(Kind kind, Place place) {
    script_.values.emplace_back();
    PythonValue& value = script_.values.back();
    value.kind = kind;
    value.place = place;
    return &value;
  }
  PythonValue* unknown(Place place, std::string why) {
    PythonValue* value = make(Kind::kUnknown, place);
    value->text = std::move(why);
    return value;
  }
  PythonValue* unread(size_t begin) {
    const Token& first = token(begin);
    const size_t last = std::max(begin, at_ > 0 ? at_ - 1 : 0);
    const size_t end = (*tokens_)[std::min(last, tokens_->size() - 1)].end;
    const std::string_view text = source_.substr(first.begin, end - first.begin);
    return unknown(first.place,
                   quoted_for_message(text.substr(0, text.find('\n'))) + ", which is not read");
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

  PythonValue* expression(bool stops_at_colon = false) {
    const size_t begin = at_;
    if (ends()) return unknown({}, "nothing");
    PythonValue* value =
        is_name(at_) && is_among(kExpressionWords, token(at_).text) ? nullptr : sum();
    const bool whole = value != nullptr &&
                       (ends() || is_sign(",") || closes(at_) || (stops_at_colon && is_sign(":")));
    if (whole) return value;
    skip(stops_at_colon);
    return unread(begin);
  }

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
  PythonValue* sum() {
    return chain(std::array<std::string_view, 2>{"+", "-"}, [&] { return product(); });
  }
  PythonValue* product() {
    return chain(std::array<std::string_view, 4>{"*", "/", "//", "%"},
                 [&] { return signed_value(); });
  }
  PythonValue* signed_value() {
    const Place place = token(at_).place;
    bool negative = false;
    bool any = false;
    for (; is_sign("-") || is_sign("+"); ++at_) {
      negative = negative != is_sign("-");
      any = true;
    }
    PythonValue* value = postfix();
    if (is_sign("**")) {
      ++at_;
      value = binary(value, "**", deeper([&] { return signed_value(); }));
    }
    if (!any) return value;
    PythonValue* zero = make(Kind::kWhole, place);
    value = binary(zero, negative ? "-" : "+", value);
    value->place = place;
    return value;
  }

  // Powers of powers: of brackets the lexer counts how deep they are.
  template <typename Part>
  PythonValue* deeper(const Part& part) {
    constexpr int kMostDepth = 100;
    const Place place = token(at_).place;
    if (depth_ >= kMostDepth) {
      skip(false);
      return unknown(place, "an expression that is too deep to be read");
    }
    ++depth_;
    PythonValue* value = part();
    --depth_;
    return value;
  }

  PythonValue* binary(PythonValue* left, std::string_view sign, PythonValue* right) {
    for (PythonValue* side : {left, right}) {
      if (side->kind == Kind::kUnknown) return unknown(side->place, side->text);
    }
    if (sign == "+" && left->kind == Kind::kList && right->kind == Kind::kList) {
      PythonValue* both = make(Kind::kList, left->place);
      both->items = left->items;
      constexpr size_t kMostItems = 1 << 16;
      if (both->items.size() + right->items.size() <= kMostItems) {
        both->items.insert(both->items.end(), right->items.begin(), right->items.end());
        return both;
      }
    }
    const auto result = computed(*left, sign, *right);
    if (!result) {
      return unknown(left->place, fmt::format("a value computed by {}, which is not read", sign));
    }
    PythonValue* value = make(result->kind, left->place);
    value->whole = result->whole;
    value->number = result->number;
    value->text = result->text;
    return value;
  }

  PythonValue* postfix() {
    const size_t begin = at_;
    std::string called = is_name(at_) ? token(at_).text : "";
    const bool plain = is_name(at_) && is_sign("(", 1) && script_.names.count(called) == 0;
    PythonValue* value = plain ? unknown(token(at_++).place, called) : atom();
    while (!ends()) {
      if (is_sign(".") && is_name(at_ + 1)) {
        called = token(at_ + 1).text;
        at_ += 2;
        if (is_sign("(") && called == "copy" && value->kind == Kind::kMap && is_sign(")", 1)) {
          at_ += 2;
          value = copy_of(value, token(begin).place);
        } else if (!is_sign("(")) {
          value = unread(begin);
        }
      } else if (is_sign("(")) {
        value = call(called, begin);
      } else if (is_sign("[")) {
        ++at_;
        PythonValue* key = expression(true);
        value = take("]") ? item_of(value, key, begin) : (skip_closing(), unread(begin));
      } else {
        break;
      }
    }
    return value;
  }

  PythonValue* copy_of(const PythonValue* map, Place place) {
    PythonValue* copy = make(Kind::kMap, place);
    copy->entries = map->entries;
    return copy;
  }

  PythonValue* item_of(const PythonValue* value, const PythonValue* key, size_t begin) {
    if (value->kind == Kind::kUnknown) return unknown(value->place, value->text);
    PythonValue* found = nullptr;
    if (value->kind == Kind::kMap && key->kind == Kind::kText) found = value->find(key->text);
    if (value->kind == Kind::kList && key->kind == Kind::kWhole) {
      const auto size = static_cast<int64_t>(value->items.size());
      const int64_t at = key->whole < 0 ? key->whole + size : key->whole;
      if (at >= 0 && at < size) found = value->items[static_cast<size_t>(at)];
    }
    return found != nullptr ? found : unread(begin);
  }

  PythonValue* call(const std::string& called, size_t begin) {
    PythonValue* value = make(Kind::kCall, token(begin).place);
    value->text = called;
    ++at_;
    bool readable = true;
    while (!ends() && !is_sign(")")) {
      const Place place = token(at_).place;
      if (is_name(at_) && is_sign("=", 1)) {
        const std::string name = token(at_).text;
        at_ += 2;
        value->entries.push_back({name, place, expression()});
      } else if (take("**")) {
        spread(*value, place, expression());
      } else {
        readable = !take("*") && readable;
        value->items.push_back(expression());
      }
      if (!take(",") && !is_sign(")")) {
        skip_closing();
        return unread(begin);
      }
    }
    take(")");
    return readable ? result_of(value, begin) : unread(begin);
  }

  // What a call gives: of a few functions their value, of all others the call itself.
  PythonValue* result_of(PythonValue* call, size_t begin) {
    const bool dotted = is_sign_at(begin + 1, ".");
    if (defined_.count(call->text) > 0) {
      for (PythonValue* item : arguments_of(*call)) {
        if (holds_values(*item)) {
          forget(item,
                 fmt::format("{}() on line {} may have changed it", call->text, call->place.line));
        }
      }
      return unread(begin);
    }
    if (!dotted && call->text == "dict") {
      const bool from_map = call->items.size() == 1 && call->items[0]->kind == Kind::kMap;
      if (!call->items.empty() && !from_map) return unread(begin);
      PythonValue* map =
          from_map ? copy_of(call->items[0], call->place) : make(Kind::kMap, call->place);
      for (const PythonEntry& entry : call->entries) put(*map, entry);
      return map;
    }
    const bool one = call->items.size() == 1 && call->entries.empty();
    if (!dotted && one && (call->text == "int" || call->text == "float")) {
      const PythonValue& from = *call->items[0];
      constexpr double kExact = 9007199254740992.0;  // 2^53
      const bool whole = from.kind == Kind::kWhole;
      if (!whole && (from.kind != Kind::kNumber || std::abs(from.number) > kExact)) {
        return unread(begin);
      }
      const bool to_whole = call->text == "int";
      PythonValue* value = make(to_whole ? Kind::kWhole : Kind::kNumber, call->place);
      value->whole = whole ? from.whole : static_cast<int64_t>(from.number);
      value->number = whole ? static_cast<double>(from.whole) : from.number;
      return value;
    }
    script_.calls.push_back(call);
    return call;
  }

  static std::vector<PythonValue*> arguments_of(const PythonValue& call) {
    std::vector<PythonValue*> all = call.items;
    for (const PythonEntry& entry : call.entries) all.push_back(entry.value);
    return all;
  }

  static void put(PythonValue& map, const PythonEntry& entry) {
    const auto there = std::ranges::find(map.entries, entry.key, &PythonEntry::key);
    if (there != map.entries.end()) {
      *there = entry;
    } else {
      map.entries.push_back(entry);
    }
  }

  // `**other` in a dictionary or a call.
  static void spread(PythonValue& into, Place place, PythonValue* other) {
    if (other->kind != Kind::kMap) {
      into.entries.push_back({"**", place, other});
      return;
    }
    for (const PythonEntry& entry : other->entries) put(into, entry);
  }

  PythonValue* atom() {
    const size_t begin = at_;
    const Token& first = token(at_);
    if (first.kind == Token::Kind::kText) return text();
    if (first.kind == Token::Kind::kNumber) {
      ++at_;
      const auto number = number_literal(first.text);
      if (!number) return unread(begin);
      PythonValue* value = make(number->kind, first.place);
      value->whole = number->whole;
      value->number = number->number;
      return value;
    }
    if (first.kind == Token::Kind::kName) return name();
    if (is_sign("(")) return sequence(")");
    if (is_sign("[")) return sequence("]");
    if (is_sign("{")) return map();
    skip(false);
    return unread(begin);
  }

  // Texts beside each other are one.
  PythonValue* text() {
    const size_t begin = at_;
    PythonValue* value = make(Kind::kText, token(at_).place);
    bool is_computed = false;
    for (; token(at_).kind == Token::Kind::kText; ++at_) {
      value->text += token(at_).text;
      is_computed = is_computed || token(at_).computed;
    }
    return is_computed ? unread(begin) : value;
  }

  PythonValue* name() {
    const Token& first = token(at_++);
    if (first.text == "True" || first.text == "False") {
      PythonValue* value = make(Kind::kBool, first.place);
      value->whole = first.text == "True" ? 1 : 0;
      return value;
    }
    if (first.text == "None") return make(Kind::kNone, first.place);
    if (is_among(kExpressionWords, first.text)) {
      const size_t begin = at_ - 1;
      skip(false);
      return unread(begin);
    }
    const auto known = script_.names.find(first.text);
    if (known != script_.names.end()) return known->second;
    return unknown(first.place,
                   quoted_for_message(first.text) + ", to which these lines give no value");
  }

  PythonValue* sequence(std::string_view closing) {
    const size_t begin = at_++;
    PythonValue* list = make(Kind::kList, token(begin).place);
    list->is_tuple = closing == ")";
    bool commas = false;
    while (!ends() && !is_sign(closing)) {
      if (is_sign("*")) return skip_closing(), unread(begin);
      list->items.push_back(expression());
      if (!take(",")) break;
      commas = true;
    }
    if (!take(closing)) return skip_closing(), unread(begin);
    const bool in_brackets = list->is_tuple && list->items.size() == 1 && !commas;
    return in_brackets ? list->items[0] : list;
  }

  PythonValue* map() {
    const size_t begin = at_++;
    PythonValue* value = make(Kind::kMap, token(begin).place);
    while (!ends() && !is_sign("}")) {
      const Place place = token(at_).place;
      if (take("**")) {
        spread(*value, place, expression());
      } else {
        const PythonValue* key = expression(true);
        if (key->kind != Kind::kText || !take(":")) return skip_closing(), unread(begin);
        value->entries.push_back({key->text, place, expression()});
      }
      if (!take(",")) break;
    }
    if (!take("}")) return skip_closing(), unread(begin);
    return value;
  }

  // --- lines

  // The number of the line that comes next.
  size_t line(const std::vector<PythonLine>& lines, size_t number) {
    tokens_ = &lines[number].tokens;
    at_ = 0;
    const Token& first = token(0);
    const bool is_word = first.kind == Token::Kind::kName;
    if (is_word && is_among(kBlocks, first.text)) return block(lines, number);
    if (is_sign("@") || (is_word && is_among(kSkipped, first.text) && !is_sign("=", 1))) {
      return number + 1;
    }
    if (is_word && first.text == "del" && is_name(1)) {
      lose(1, fmt::format("line {} deletes it or part of it", first.place.line));
      return number + 1;
    }
    statement();
    return number + 1;
  }

  // A block whose lines may or may not be run: what they set is unknown from here on.
  size_t block(const std::vector<PythonLine>& lines, size_t number) {
    const PythonLine& header = lines[number];
    const auto says = [&](size_t at, std::string_view text) { return token(at).text == text; };
    if (says(0, "if") && says(1, "__name__") && says(2, "==") && says(3, "__main__") &&
        says(4, ":") && tokens_->size() == 5) {
      return number + 1;  // a script is run
    }
    std::string word = token(0).text;
    if (word == "async") word = token(1).text;
    const bool apart = word == "def" || word == "class";  // its names are its own
    if (apart) defined_.insert(token(token(0).text == "async" ? 2 : 1).text);
    const std::string why =
        fmt::format("'{}' on line {} may set it, and is not read", word, token(0).place.line);
    size_t end = number + 1;
    while (end < lines.size() && lines[end].indent > header.indent) ++end;
    for (size_t i = number; i < end; ++i) {
      tokens_ = &lines[i].tokens;
      size_t begin = 0;
      for (size_t at = 0; at < tokens_->size(); ++at) {
        if (is_name(at) && is_sign_at(at + 1, "(")) {
          script_.unread.push_back({token(at).text, token(at).place, word});
        }
        if (apart) continue;
        const bool bound = at > 0 && is_name(at) && is_name(at - 1) &&
                           (token(at - 1).text == "for" || token(at - 1).text == "as");
        if (bound) lose(at, why);
        if (i == number && is_sign_at(at, ":")) begin = at + 1;
      }
      if (!apart && is_name(begin) && (i > number || begin > 0)) lose(begin, why);
    }
    return end;
  }

  // What a line that begins with the name at `at` does to it is not known.
  void lose(size_t at, const std::string& why) {
    const std::string& name = token(at).text;
    const auto known = script_.names.find(name);
    const bool calls = is_sign_at(at + 1, "(");
    if (calls) return;
    const bool inside = is_sign_at(at + 1, "[") || is_sign_at(at + 1, ".");
    if (!inside) {
      script_.names[name] = unknown(token(at).place, why);
    } else if (known != script_.names.end() && holds_values(*known->second)) {
      forget(known->second, why);
    }
  }

  size_t find_sign(std::string_view sign, size_t from) const {
    int depth = 0;
    for (size_t at = from; at < tokens_->size(); ++at) {
      if (opens(at)) ++depth;
      if (closes(at)) --depth;
      if (depth == 0 && is_sign_at(at, sign)) return at;
    }
    return tokens_->size();
  }

  void statement() {
    const size_t equals = find_sign("=", 0);
    if (equals < tokens_->size()) return assignment(equals);
    const std::string& sign = token(1).text;
    const bool augmented = is_name(0) && token(1).kind == Token::Kind::kSign && sign.size() > 1 &&
                           sign.ends_with("=") && sign != "==" && sign != "!=" && sign != "<=" &&
                           sign != ">=" && sign != ":=";
    if (augmented) {
      const std::string name = token(0).text;
      at_ = 2;
      PythonValue* right = expression();
      const auto known = script_.names.find(name);
      PythonValue* left = known != script_.names.end()
                              ? known->second
                              : unknown(token(0).place, quoted_for_message(name));
      if (holds_values(*left)) {
        return lose_value(left, token(0).place.line);
      }
      script_.names[name] = binary(left, sign.substr(0, sign.size() - 1), right);
      return;
    }
    if (changes_value()) return;
    PythonValue* value = expression_list();
    if (value->kind != Kind::kUnknown) script_.last = value;
  }

  void lose_value(PythonValue* value, int line) {
    forget(value, fmt::format("line {} changes it in a way that is not read", line));
  }

  PythonValue* expression_list() {
    PythonValue* first = expression();
    if (!is_sign(",")) return first;
    PythonValue* tuple = make(Kind::kList, first->place);
    tuple->is_tuple = true;
    tuple->items.push_back(first);
    while (take(",") && !ends()) tuple->items.push_back(expression());
    return tuple;
  }

  void assignment(size_t equals) {
    std::vector<size_t> ends_of_targets;
    for (; equals < tokens_->size(); equals = find_sign("=", equals + 1)) {
      ends_of_targets.push_back(equals);
    }
    at_ = ends_of_targets.back() + 1;
    PythonValue* value = expression_list();
    size_t begin = 0;
    for (const size_t end : ends_of_targets) {
      assign(begin, end, value);
      begin = end + 1;
    }
  }

  void assign(size_t begin, size_t end, PythonValue* value) {
    if (is_name(begin) && (end == begin + 1 || is_sign_at(begin + 1, ":"))) {
      script_.names[token(begin).text] = value;
    } else if (is_name(begin) && is_sign_at(begin + 1, "[")) {
      assign_item(begin, end, value);
    } else if (find_sign(",", begin) < end) {
      for (size_t at = begin; at < end; ++at) {
        if (is_name(at) && !is_sign_at(at + 1, ".")) {
          script_.names[token(at).text] =
              unknown(token(at).place, "one of several values of a line, which is not read");
        }
      }
    }
  }

  void assign_item(size_t begin, size_t end, PythonValue* value) {
    const auto known = script_.names.find(token(begin).text);
    if (known == script_.names.end()) return;
    PythonValue* map = known->second;
    if (!holds_values(*map)) return;
    const int line = token(begin).place.line;
    at_ = begin + 1;
    while (true) {
      const Place place = token(at_ + 1).place;
      const bool open = map->kind == Kind::kMap && take("[");
      const PythonValue* key = open ? expression(true) : nullptr;
      if (!open || key->kind != Kind::kText || !take("]") || at_ > end) break;
      if (at_ == end) return put(*map, {key->text, place, value});
      PythonValue* next = map->find(key->text);
      if (next == nullptr) break;
      map = next;
    }
    lose_value(known->second, line);
  }

  // A line such as options["parameters"].update(...).
  bool changes_value() {
    if (!is_name(0)) return false;
    const auto known = script_.names.find(token(0).text);
    if (known == script_.names.end() || !holds_values(*known->second)) return false;
    const size_t dot = find_sign(".", 1);
    const std::string method = token(dot + 1).text;
    const bool is_update = method == "update";
    if (!is_sign_at(dot + 2, "(") || (!is_update && !is_among(kChanges, method))) return false;
    const size_t parenthesis = dot + 2;
    PythonValue* map = known->second;
    at_ = 1;
    while (at_ < dot && map != nullptr && map->kind == Kind::kMap && take("[")) {
      const PythonValue* key = expression(true);
      map = key->kind == Kind::kText && take("]") ? map->find(key->text) : nullptr;
    }
    const bool found = map != nullptr && map->kind == Kind::kMap && at_ == dot;
    at_ = parenthesis;
    const size_t calls_before = script_.calls.size();
    const PythonValue* change = found && is_update ? call("update", 0) : nullptr;
    script_.calls.resize(std::min(script_.calls.size(), calls_before));
    const bool simple = change != nullptr && change->kind == Kind::kCall && ends() &&
                        (change->items.empty() ||
                         (change->items.size() == 1 && change->items[0]->kind == Kind::kMap));
    if (!simple) {
      lose_value(known->second, token(0).place.line);
      return true;
    }
    if (!change->items.empty()) spread(*map, change->place, change->items[0]);
    for (const PythonEntry& entry : change->entries) put(*map, entry);
    return true;
  }

  std::string_view source_;
  PythonScript script_;
  std::set<std::string> defined_;  // functions and classes of the script
  const std::vector<Token>* tokens_ = nullptr;
  size_t at_ = 0;
  int depth_ = 0;
};

class DocumentWriter {
 public:
  DocumentWriter(std::span<const std::string_view> unread, Diagnostics& diagnostics)
      : unread_(unread), diagnostics_(diagnostics) {}

  YamlNode write(const PythonValue& value, const std::string& name, int depth) {
    YamlNode node;
    node.place = value.place;
    node.kind = YamlNode::Kind::kScalar;
    if (depth > kMostDepth || ++nodes_ > kMostNodes) {
      if (!reported_) diagnostics_.error(value.place, "this value holds too much to be read");
      reported_ = node.reported = true;
      return node;
    }
    switch (value.kind) {
      case Kind::kNone: node.kind = YamlNode::Kind::kNull; break;
      case Kind::kBool: node.text = value.whole != 0 ? "true" : "false"; break;
      case Kind::kWhole: node.text = fmt::format("{}", value.whole); break;
      case Kind::kNumber: node.text = fmt::format("{}", value.number); break;
      case Kind::kText:
        node.text = value.text;
        node.quoted = true;
        break;
      case Kind::kList:
        node.kind = YamlNode::Kind::kList;
        for (const PythonValue* item : value.items) {
          node.items.push_back(write(*item, name, depth + 1));
        }
        break;
      case Kind::kMap: write_map(value, node, depth); break;
      case Kind::kCall: refuse(value, name, value.text + "(...), which is not read", node); break;
      case Kind::kUnknown: refuse(value, name, value.text, node); break;
    }
    return node;
  }

 private:
  static constexpr int kMostDepth = 64;
  static constexpr int kMostNodes = 1 << 16;

  void refuse(const PythonValue& value, const std::string& name, const std::string& why,
              YamlNode& node) {
    diagnostics_.error(value.place,
                       fmt::format("{}: {}: write the value itself in its place", name, why));
    node.reported = true;
  }

  void write_map(const PythonValue& value, YamlNode& node, int depth) {
    node.kind = YamlNode::Kind::kMap;
    for (const PythonEntry& entry : value.entries) {
      const auto first = std::ranges::find(node.entries, entry.key, &YamlEntry::key);
      if (first != node.entries.end()) {
        diagnostics_.error(entry.place,
                           fmt::format("{} is given twice, first on line {}",
                                       quoted_for_message(entry.key), first->place.line));
        continue;
      }
      node.entries.push_back({entry.key, entry.place, {}});
      YamlNode& of_key = node.entries.back().value;
      if (std::ranges::count(unread_, entry.key) > 0) {
        of_key.kind = YamlNode::Kind::kScalar;
        of_key.place = entry.place;
      } else {
        of_key = write(*entry.value, entry.key, depth + 1);
      }
    }
  }

  std::span<const std::string_view> unread_;
  Diagnostics& diagnostics_;
  int nodes_ = 0;
  bool reported_ = false;
};

}  // namespace

PythonValue* PythonValue::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &PythonEntry::key);
  return found != entries.end() ? found->value : nullptr;
}

PythonScript read_python(std::string_view text, int source, Diagnostics& diagnostics) {
  const std::vector<PythonLine> lines = python_lines(text, source, diagnostics);
  return PythonReader(text).run(lines);
}

YamlNode document_of(const PythonValue& value, const std::string& name,
                     std::span<const std::string_view> unread, Diagnostics& diagnostics) {
  return DocumentWriter(unread, diagnostics).write(value, name, 0);
}

}  // namespace smp
