#include "pyscript/python_script.h"

#include <fmt/format.h>

#include "pyscript/python_expressions.h"

namespace smp::pyscript {
namespace {

constexpr std::array<std::string_view, 12> kBlocks = {"if",     "elif",    "else",  "for",
                                                      "while",  "def",     "class", "try",
                                                      "except", "finally", "with",  "async"};
constexpr std::array<std::string_view, 12> kSkipped = {"import", "from",   "pass",     "return",
                                                       "raise",  "assert", "global",   "break",
                                                       "yield",  "await",  "continue", "nonlocal"};
// Methods that change a dictionary or a list, beside update().
constexpr std::array<std::string_view, 10> kChanges = {"pop",    "popitem", "setdefault", "clear",
                                                       "append", "extend",  "insert",     "remove",
                                                       "sort",   "reverse"};

// The lines of a script, in their order.
class PythonLines : private PythonExpressions {
 public:
  explicit PythonLines(std::string_view source) : PythonExpressions(source) {}

  PythonScript run(const std::vector<PythonLine>& lines) {
    for (size_t i = 0; i < lines.size();) i = line(lines, i);
    return std::move(script_);
  }

 private:
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
      lose(1, fmt::format("line {} deletes the value or a part of it", first.place.line));
      return number + 1;
    }
    statement();
    lose_set_inside();
    return number + 1;
  }

  // (name := value) somewhere in a line.
  void lose_set_inside() {
    for (size_t at = 1; at < tokens_->size(); ++at) {
      if (!is_sign_at(at, ":=") || !is_name(at - 1)) continue;
      const Token& name = token(at - 1);
      script_.names[name.text] = unknown(
          name.place, fmt::format("':=' on line {} sets the value, which smp does not evaluate",
                                  name.place.line));
    }
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
        fmt::format("'{}' on line {}, which smp does not evaluate, may set the value", word,
                    token(0).place.line);
    size_t end = number + 1;
    while (end < lines.size() && lines[end].indent > header.indent) ++end;
    for (size_t i = number; i < end; ++i) {
      tokens_ = &lines[i].tokens;
      if (!apart) lose_set_inside();
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
                              : unknown(token(0).place, text::quoted_for_message(name));
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
    forget(value,
           fmt::format("line {} changes the value in a way that smp does not evaluate", line));
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
          script_.names[token(at).text] = unknown(
              token(at).place, "one of several values in a line, which smp does not evaluate");
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
      const text::Place place = token(at_ + 1).place;
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
};

}  // namespace

PythonScript read_python(std::string_view text, int source, text::Diagnostics& diagnostics) {
  const std::vector<PythonLine> lines = python_lines(text, source, diagnostics);
  return PythonLines(text).run(lines);
}

}  // namespace smp::pyscript
