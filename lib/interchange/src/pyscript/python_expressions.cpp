#include "pyscript/python_expressions.h"

#include <fmt/format.h>

#include <cmath>

#include "pyscript/python_arithmetic.h"

namespace smp::pyscript {

PythonValue* PythonExpressions::expression(bool stops_at_colon) {
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

PythonValue* PythonExpressions::sum() {
  return chain(std::array<std::string_view, 2>{"+", "-"}, [&] { return product(); });
}

PythonValue* PythonExpressions::product() {
  return chain(std::array<std::string_view, 4>{"*", "/", "//", "%"},
               [&] { return signed_value(); });
}

PythonValue* PythonExpressions::signed_value() {
  const text::Place place = token(at_).place;
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

PythonValue* PythonExpressions::binary(PythonValue* left, std::string_view sign,
                                       PythonValue* right) {
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
    return unknown(left->place,
                   fmt::format("a value computed by {}, which smp does not evaluate", sign));
  }
  PythonValue* value = make(result->kind, left->place);
  value->whole = result->whole;
  value->number = result->number;
  value->text = result->text;
  return value;
}

PythonValue* PythonExpressions::postfix() {
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

PythonValue* PythonExpressions::copy_of(const PythonValue* map, text::Place place) {
  PythonValue* copy = make(Kind::kMap, place);
  copy->entries = map->entries;
  return copy;
}

PythonValue* PythonExpressions::item_of(const PythonValue* value, const PythonValue* key,
                                        size_t begin) {
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

PythonValue* PythonExpressions::call(const std::string& called, size_t begin) {
  PythonValue* value = make(Kind::kCall, token(begin).place);
  value->text = called;
  ++at_;
  bool readable = true;
  while (!ends() && !is_sign(")")) {
    const text::Place place = token(at_).place;
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

PythonValue* PythonExpressions::result_of(PythonValue* call, size_t begin) {
  const bool dotted = is_sign_at(begin + 1, ".");
  if (defined_.count(call->text) > 0) {
    for (PythonValue* item : arguments_of(*call)) {
      if (holds_values(*item)) {
        forget(item, fmt::format("{}() on line {} may have changed the value", call->text,
                                 call->place.line));
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

std::vector<PythonValue*> PythonExpressions::arguments_of(const PythonValue& call) {
  std::vector<PythonValue*> all = call.items;
  for (const PythonEntry& entry : call.entries) all.push_back(entry.value);
  return all;
}

void PythonExpressions::put(PythonValue& map, const PythonEntry& entry) {
  const auto there = std::ranges::find(map.entries, entry.key, &PythonEntry::key);
  if (there != map.entries.end()) {
    *there = entry;
  } else {
    map.entries.push_back(entry);
  }
}

void PythonExpressions::spread(PythonValue& into, text::Place place, PythonValue* other) {
  if (other->kind != Kind::kMap) {
    into.entries.push_back({"**", place, other});
    return;
  }
  for (const PythonEntry& entry : other->entries) put(into, entry);
}

PythonValue* PythonExpressions::atom() {
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

PythonValue* PythonExpressions::text() {
  const size_t begin = at_;
  PythonValue* value = make(Kind::kText, token(at_).place);
  bool is_computed = false;
  for (; token(at_).kind == Token::Kind::kText; ++at_) {
    value->text += token(at_).text;
    is_computed = is_computed || token(at_).computed;
  }
  return is_computed ? unread(begin) : value;
}

PythonValue* PythonExpressions::name() {
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
                 text::quoted_for_message(first.text) + ", which the lines above do not set");
}

PythonValue* PythonExpressions::sequence(std::string_view closing) {
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

PythonValue* PythonExpressions::map() {
  const size_t begin = at_++;
  PythonValue* value = make(Kind::kMap, token(begin).place);
  while (!ends() && !is_sign("}")) {
    const text::Place place = token(at_).place;
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

}  // namespace smp::pyscript
