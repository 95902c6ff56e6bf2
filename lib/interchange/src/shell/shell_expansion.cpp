#include "shell/shell_expansion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "shell/shell_arithmetic.h"
#include "shell/shell_lexer.h"

namespace smp::shell {
namespace {

constexpr size_t kMostProduced = size_t{1} << 22;  // cells, of all expansions of a script
constexpr size_t kMostValue = size_t{1} << 17;
constexpr int kMostNames = 16;     // of names that stand for names in arithmetic
constexpr int kMostChoices = 256;  // of choices in choices

bool is_all(const ShellPart& part) {
  return part.index == "@" || part.index == "*" || part.name == "@" || part.name == "*";
}

bool is_argument(const std::string& name) {
  return name.find_first_not_of("0123456789") == std::string::npos ||
         (name.size() == 1 && std::string_view("@*#?$!-").find(name[0]) != std::string_view::npos);
}

// Whether a text is there at all: unknown where all of it is unknown.
std::optional<bool> is_filled(const ShellText& text) {
  if (std::ranges::any_of(text,
                          [](const ShellChar& c) { return c.kind == ShellChar::Kind::kPlain; }))
    return true;
  return doubt_in(text) ? std::nullopt : std::optional(false);
}

}  // namespace

bool is_alone(const ShellField& field) {
  return field.text.size() == 1 && field.text[0].kind == ShellChar::Kind::kUnknown &&
         !field.text[0].quoted;
}

ShellItem shell_item_of(ShellField field) {
  const bool many = is_alone(field);
  for (ShellChar& c : field.text) c.quoted = false;
  return {std::move(field.text), field.doubt, many};
}

void ShellExpansion::count(size_t cells) {
  produced_ += cells;
  if (produced_ > kMostProduced)
    throw ShellError{0, "the values in this script are too long to import"};
}

int32_t ShellExpansion::add_doubt(std::string what, uint32_t at, bool unset) {
  ShellDoubt doubt;
  doubt.what = std::move(what);
  doubt.at = at;
  doubt.unset = unset;
  doubts_.push_back(std::move(doubt));
  return static_cast<int32_t>(doubts_.size()) - 1;
}

std::vector<ShellField> ShellExpansion::fields(const std::vector<ShellWordSyntax>& words) {
  std::vector<ShellField> out;
  for (const ShellWordSyntax& word : words) {
    refuse_other_ifs(word);
    split(expanded(word.parts), -1, word.at, out, 0);
  }
  return out;
}

// The characters of IFS if they are not only blanks; of an unknown IFS, those that it may hold.
std::optional<std::string> ShellExpansion::other_ifs() const {
  constexpr std::string_view kBlanks = " \t\n", kAny = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  const auto found = variables_.find("IFS");
  if (found == variables_.end()) return std::nullopt;
  const ShellText none;
  const ShellText& text = found->second.items.empty() ? none : found->second.items[0].text;
  if (doubt_in(text)) return std::string(kAny);
  std::string ifs = plain_text(text);
  const bool is_blank =
      ifs.find_first_not_of(kBlanks) == ifs.npos &&
      std::ranges::all_of(kBlanks, [&](char c) { return ifs.find(c) != ifs.npos; });
  return is_blank ? std::nullopt : std::optional(std::move(ifs));
}

// Whether a value has a character at which IFS splits and blanks do not, or the reverse.
void ShellExpansion::refuse_other_ifs(const ShellWordSyntax& word) {
  const auto ifs = other_ifs();
  if (!ifs) return;
  for (const ShellPart& part : word.parts) {
    if (part.quoted || part.kind == ShellPart::Kind::kText) continue;
    for (const ShellChar& c : expanded({part})) {
      const bool splits = ifs->find(c.c) != ifs->npos;
      if (c.kind != ShellChar::Kind::kPlain || c.quoted || splits == is_shell_blank(c)) continue;
      throw ShellError{word.at, fmt::format("{} is split at an IFS other than blanks, which smp "
                                            "does not support: write the words separately",
                                            part.shown)};
    }
  }
}

ShellText ShellExpansion::value(const ShellWordSyntax& word) {
  ShellText out;
  int32_t absent = -1;  // of the field that is being read
  for (ShellChar c : expanded(word.parts)) {
    if (c.kind == ShellChar::Kind::kEmpty) continue;
    if (c.kind == ShellChar::Kind::kEdge) {
      absent = c.doubt;
      c = {.c = ' ', .at = c.at};
      if (absent >= 0) {
        out.push_back(c);
        out.push_back({.kind = ShellChar::Kind::kUnknown,
                       .doubt = derived_doubt(doubts_, absent),
                       .at = c.at});
      }
    }
    if (absent >= 0) continue;
    c.quoted = false;
    out.push_back(c);
  }
  if (out.size() > kMostValue) throw ShellError{word.at, "this value is too long to import"};
  return out;
}

std::vector<ShellItem> ShellExpansion::items(const std::vector<ShellWordSyntax>& words) {
  std::vector<ShellItem> out;
  for (ShellField& field : fields(words)) {
    out.push_back(shell_item_of(std::move(field)));
  }
  return out;
}

ShellText ShellExpansion::expanded(const std::vector<ShellPart>& parts) {
  ShellText out;
  for (const ShellPart& part : parts) {
    switch (part.kind) {
      case ShellPart::Kind::kText:
        out.insert(out.end(), part.text.begin(), part.text.end());
        if (part.text.empty())
          out.push_back({.kind = ShellChar::Kind::kEmpty, .quoted = true, .at = part.at});
        break;
      case ShellPart::Kind::kVariable: variable(part, out); break;
      case ShellPart::Kind::kArithmetic: {
        int32_t doubt = -1;
        if (const auto value = arithmetic(part, doubt)) {
          for (const char c : fmt::format("{}", *value)) {
            out.push_back({.quoted = part.quoted, .c = c, .at = part.at});
          }
        } else {
          put_unknown(doubt, part, out);
        }
        break;
      }
      case ShellPart::Kind::kCommand: {
        const bool runs = part.shown.starts_with("$(") || part.shown.starts_with('`');
        const bool blank = part.shown.starts_with('<') && !part.shown.starts_with("<(");
        put_unknown(add_doubt(fmt::format("{}, which {}", part.shown,
                                          runs    ? "smp does not run"
                                          : blank ? "is to be filled in"
                                                  : "smp does not evaluate"),
                              part.at),
                    part, out);
        break;
      }
    }
    count(out.size());
  }
  return out;
}

void ShellExpansion::put_unknown(int32_t doubt, const ShellPart& part, ShellText& out) {
  // "${A[@]}" may be any number of words.
  out.push_back({.kind = ShellChar::Kind::kUnknown,
                 .quoted = part.quoted && !is_all(part),
                 .doubt = doubt,
                 .at = part.at});
}

void ShellExpansion::put(const std::vector<ShellItem>& items, const ShellPart& part,
                         ShellText& out) {
  const bool together = part.quoted && (part.index == "*" || part.name == "*");
  for (size_t i = 0; i < items.size(); ++i) {
    const ShellItem& item = items[i];
    const bool doubtful = item.doubt >= 0 || (i > 0 && items[i - 1].doubt >= 0);
    if (together && i > 0) {
      out.push_back({.quoted = true, .c = ' ', .at = part.at});
    } else if (i > 0 || doubtful) {
      out.push_back({.kind = ShellChar::Kind::kEdge, .doubt = item.doubt, .at = part.at});
    }
    if (together && item.doubt >= 0) {
      put_unknown(derived_doubt(doubts_, item.doubt), part, out);
      continue;
    }
    for (ShellChar c : item.text) {
      c.quoted = part.quoted && !(item.many && is_all(part));
      out.push_back(c);
    }
    if (item.text.empty() && part.quoted) {
      out.push_back({.kind = ShellChar::Kind::kEmpty, .quoted = true, .at = part.at});
    }
  }
  if (!items.empty() && items.back().doubt >= 0) {
    out.push_back({.kind = ShellChar::Kind::kEdge, .at = part.at});
  }
}

// Why it is not known which of the first `count` items is which, or -1: one that may be absent, or
// be several, moves the others.
int32_t ShellExpansion::doubt_before(const std::vector<ShellItem>& items, size_t count) {
  for (size_t i = 0; i < count && i < items.size(); ++i) {
    int32_t doubt = items[i].doubt;
    if (doubt < 0 && items[i].many) doubt = doubt_in(items[i].text).value_or(-1);
    const bool stands = doubt < 0 || (items[i].many && doubts_[static_cast<size_t>(doubt)].unset);
    if (!stands) return derived_doubt(doubts_, doubt);
  }
  return -1;
}

// The arguments of a function's call; the script's own are unknown.
std::vector<ShellItem> ShellExpansion::argument(const ShellPart& part, int32_t& doubt) {
  const bool counts = part.name == "#", all = is_all(part);
  const bool digit = std::isdigit(static_cast<unsigned char>(part.name[0])) != 0;
  if (!arguments_ || part.name == "0" || (!counts && !all && !digit)) {
    const std::string_view what = all     ? ", the script's arguments"
                                  : digit ? ", an argument of the script"
                                          : ", known only when the script runs";
    doubt = add_doubt(part.shown + std::string(what), part.at, all || (digit && part.name != "0"));
    return {};
  }
  std::vector<ShellItem> out;
  if (counts) {
    ShellText text = shell_text(fmt::format("{}", arguments_->size()));
    for (ShellChar& c : text) c.at = part.at;
    out.push_back({text, -1});
  } else if (all) {
    out = *arguments_;
  } else {
    size_t number = 0;
    std::from_chars(part.name.data(), part.name.data() + part.name.size(), number);
    doubt = doubt_before(*arguments_, number);
    if (doubt >= 0) return {};
    const bool given = number > 0 && number <= arguments_->size();
    out.push_back(given ? (*arguments_)[number - 1] : ShellItem{});
  }
  return out;
}

// Nothing, and the doubt, where it is not known.
std::optional<std::vector<ShellItem>> ShellExpansion::lookup(const ShellPart& part,
                                                             int32_t& doubt) {
  if (is_argument(part.name)) {
    std::vector<ShellItem> items = argument(part, doubt);
    return doubt < 0 ? std::optional(std::move(items)) : std::nullopt;
  }
  const auto found = variables_.find(part.name);
  if (found == variables_.end()) {
    doubt = add_doubt(fmt::format("${}, which this text does not set", part.name), part.at, true);
    doubts_[static_cast<size_t>(doubt)].name = part.name;
    return std::nullopt;
  }
  const std::vector<ShellItem>& items = found->second.items;
  if (is_all(part)) return items;
  size_t number = 0;
  if (!part.index.empty()) {
    const auto index = shell_arithmetic(part.index, [&](const std::string& name) {
      int32_t ignored = -1;
      return number_of(name, part.at, ignored, 0);
    });
    if (!index || *index < 0) {
      doubt = add_doubt(fmt::format("{}, which smp does not evaluate", part.shown), part.at);
      return std::nullopt;
    }
    number = static_cast<size_t>(*index);
  }
  doubt = doubt_before(items, number + 1);
  if (doubt >= 0) return std::nullopt;
  return std::vector<ShellItem>{number < items.size() ? items[number] : ShellItem{}};
}

void ShellExpansion::put_length(const std::optional<std::vector<ShellItem>>& found, int32_t doubt,
                                const ShellPart& part, ShellText& out) {
  for (const ShellItem& item : found.value_or(std::vector<ShellItem>{})) {
    if (doubt < 0 && item.doubt >= 0) doubt = item.doubt;
    if (doubt < 0) doubt = doubt_in(item.text).value_or(-1);
  }
  if (doubt >= 0) return put_unknown(derived_doubt(doubts_, doubt), part, out);
  const size_t length = is_all(part) ? found->size() : found->empty() ? 0 : (*found)[0].text.size();
  for (const char c : fmt::format("{}", length)) {
    out.push_back({.quoted = part.quoted, .c = c, .at = part.at});
  }
}

void ShellExpansion::variable(const ShellPart& part, ShellText& out) {
  int32_t doubt = -1;
  auto found = lookup(part, doubt);
  if (part.op == "#") return put_length(found, doubt, part, out);
  if ((part.index == "*" || part.name == "*") && found && found->size() > 1 && other_ifs()) {
    throw ShellError{part.at, fmt::format("{} is joined by an IFS other than blanks, which smp "
                                          "does not support: write the joined word",
                                          part.shown)};
  }
  ShellText stands;
  if (found) {
    put(*found, part, stands);
  } else {
    put_unknown(doubt, part, stands);
  }
  if (part.op.empty() || part.op.ends_with('?')) {
    out.insert(out.end(), stands.begin(), stands.end());
    return;
  }
  const bool colon = part.op.starts_with(':');
  std::optional<bool> filled = is_filled(stands);
  if (found && !colon) filled = true;
  const auto unknown = doubt_in(stands);
  ShellText other = expanded(part.word);
  if (part.op.ends_with('+')) {
    if (filled == true) {
      out.insert(out.end(), other.begin(), other.end());
    } else if (!filled) {
      for (ShellChar& c : other) c.quoted = false;
      ShellDoubt choice = doubts_[static_cast<size_t>(*unknown)];
      choice.unset = false;
      choice.choice = true;
      choice.choices = {{}, std::move(other)};
      doubts_.push_back(std::move(choice));
      put_unknown(static_cast<int32_t>(doubts_.size()) - 1, part, out);
    }
    return;
  }
  // A default that is empty says no more than $NAME does.
  const bool unset =
      !filled && doubts_[static_cast<size_t>(*unknown)].unset && !plain_text(other).empty();
  if (filled != false && !unset) {
    out.insert(out.end(), stands.begin(), stands.end());
    return;
  }
  if (unset) add_default(part.name, plain_text(other));
  if (part.op.ends_with('=')) {
    ShellText value = other;
    for (ShellChar& c : value) c.quoted = false;
    std::erase_if(value, [](const ShellChar& c) { return c.kind == ShellChar::Kind::kEmpty; });
    variables_[part.name] = scalar_variable(std::move(value));
  }
  out.insert(out.end(), other.begin(), other.end());
}

// `doubt`: why those of the fields that no edge says more about may be absent.
void ShellExpansion::split(const ShellText& text, int32_t doubt, uint32_t at,
                           std::vector<ShellField>& out, int depth) {
  if (depth > kMostChoices) throw ShellError{at, "this value depends on too many tests to import"};
  ShellField field{.doubt = doubt, .at = at};
  bool there = false;
  const auto end = [&](int32_t next) {
    if (there) out.push_back(std::move(field));
    field = {.doubt = next, .at = at};
    there = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const ShellChar& c = text[i];
    if (c.kind == ShellChar::Kind::kEdge) {
      end(c.doubt >= 0 ? c.doubt : doubt);
      continue;
    }
    if (!c.quoted && is_shell_blank(c)) {
      end(field.doubt);
      continue;
    }
    if (!there) field.at = c.at;
    const bool alone =
        !there && (i + 1 == text.size() || text[i + 1].kind == ShellChar::Kind::kEdge ||
                   (!text[i + 1].quoted && is_shell_blank(text[i + 1])));
    if (c.kind == ShellChar::Kind::kUnknown && !c.quoted && alone &&
        !doubts_[static_cast<size_t>(c.doubt)].choices.empty()) {
      const std::vector<ShellText> choices = doubts_[static_cast<size_t>(c.doubt)].choices;
      for (const ShellText& choice : choices) {
        count(choice.size() + 1);
        split(choice, c.doubt, c.at, out, depth + 1);
      }
      continue;
    }
    there = true;
    if (c.kind != ShellChar::Kind::kEmpty) field.text.push_back(c);
  }
  end(-1);
}

std::optional<int64_t> ShellExpansion::number_of(const std::string& name, uint32_t at,
                                                 int32_t& doubt, int depth) {
  ShellPart part{.kind = ShellPart::Kind::kVariable, .at = at, .name = name, .shown = name};
  int32_t unknown = -1;
  const auto found = lookup(part, unknown);
  const ShellText text = found && !found->empty() ? (*found)[0].text : ShellText{};
  if (unknown < 0) unknown = doubt_in(text).value_or(-1);
  if (unknown >= 0) {
    if (doubt < 0) doubt = unknown;
    return std::nullopt;
  }
  if (depth > kMostNames) return std::nullopt;
  if (text.empty()) return 0;
  return shell_arithmetic(plain_text(text), [&](const std::string& other) {
    return number_of(other, at, doubt, depth + 1);
  });
}

std::optional<int64_t> ShellExpansion::arithmetic(const ShellPart& part, int32_t& doubt) {
  const ShellText text = expanded(ShellLexer::parts_of(part.text, true, 1));
  int32_t unknown = doubt_in(text).value_or(-1);
  std::optional<int64_t> value;
  if (unknown < 0) {
    value = shell_arithmetic(plain_text(text), [&](const std::string& name) {
      return number_of(name, part.at, unknown, 0);
    });
  }
  if (value && unknown < 0) return value;
  doubt = unknown >= 0
              ? derived_doubt(doubts_, unknown)
              : add_doubt(fmt::format("{}, which smp does not evaluate", part.shown), part.at);
  return std::nullopt;
}

// Quoted text is no pattern.
std::string ShellExpansion::pattern(const ShellWordSyntax& word, int32_t& doubt) {
  std::string out;
  for (const ShellChar& c : expanded(word.parts)) {
    if (c.kind == ShellChar::Kind::kUnknown) doubt = c.doubt;
    if (c.kind != ShellChar::Kind::kPlain) continue;
    if (c.quoted && std::isalnum(static_cast<unsigned char>(c.c)) == 0) out += '\\';
    out += c.c;
  }
  return out;
}

}  // namespace smp::shell
