#include "shell/shell_variables.h"

#include <algorithm>
#include <set>

namespace smp::shell {
namespace {

bool same_item(const ShellItem& a, const ShellItem& b) {
  return a.doubt == b.doubt && same_text(a.text, b.text);
}

bool ends_field(const ShellText& text, size_t at) {
  return at == text.size() || is_shell_blank(text[at]);
}

int32_t add_choice(std::vector<ShellDoubt>& doubts, int32_t test, ShellText a, ShellText b) {
  ShellDoubt doubt;
  doubt.what = doubts[static_cast<size_t>(test)].what;
  doubt.at = doubts[static_cast<size_t>(test)].at;
  doubt.choice = true;
  doubt.choices = {std::move(a), std::move(b)};
  doubts.push_back(std::move(doubt));
  return static_cast<int32_t>(doubts.size()) - 1;
}

// Their common beginning, up to the end of a field, and then a choice.
ShellText joined_text(const ShellText& a, const ShellText& b, int32_t test,
                      std::vector<ShellDoubt>& doubts) {
  const auto same = [](const ShellChar& x, const ShellChar& y) {
    return x.kind == y.kind && x.c == y.c && x.doubt == y.doubt;
  };
  size_t common = 0;
  while (common < a.size() && common < b.size() && same(a[common], b[common])) ++common;
  if (!ends_field(a, common) || !ends_field(b, common)) {
    while (common > 0 && !is_shell_blank(a[common - 1])) --common;
  }
  const auto offset = static_cast<std::ptrdiff_t>(common);
  ShellText out(a.begin(), a.begin() + offset);
  const uint32_t at = doubts[static_cast<size_t>(test)].at;
  if (common > 0) out.push_back({.c = ' ', .at = at});
  const int32_t choice =
      add_choice(doubts, test, {a.begin() + offset, a.end()}, {b.begin() + offset, b.end()});
  out.push_back({.kind = ShellChar::Kind::kUnknown, .doubt = choice, .at = at});
  return out;
}

ShellVariable joined_arrays(const ShellVariable& a, const ShellVariable& b, int32_t test) {
  ShellVariable out;
  out.array = true;
  out.exported = a.exported && b.exported;
  size_t common = 0;
  while (common < a.items.size() && common < b.items.size() &&
         same_item(a.items[common], b.items[common])) {
    out.items.push_back(a.items[common++]);
  }
  for (const ShellVariable* rest : {&a, &b}) {
    for (size_t i = common; i < rest->items.size(); ++i) {
      out.items.push_back(rest->items[i]);
      if (out.items.back().doubt < 0) out.items.back().doubt = test;
    }
  }
  return out;
}

}  // namespace

ShellVariable scalar_variable(ShellText text) {
  ShellVariable out;
  out.items.push_back({std::move(text), -1});
  return out;
}

ShellText unknown_text(int32_t doubt, uint32_t at) {
  return {{.kind = ShellChar::Kind::kUnknown, .doubt = doubt, .at = at}};
}

int32_t derived_doubt(std::vector<ShellDoubt>& doubts, int32_t from) {
  ShellDoubt doubt = doubts[static_cast<size_t>(from)];
  doubt.unset = false;
  doubt.choices.clear();
  doubts.push_back(std::move(doubt));
  return static_cast<int32_t>(doubts.size()) - 1;
}

ShellVariables joined_variables(const ShellVariables& a, const ShellVariables& b, int32_t test,
                                std::vector<ShellDoubt>& doubts) {
  ShellVariables out;
  std::set<std::string> names;
  for (const ShellVariables* side : {&a, &b}) {
    for (const auto& [name, variable] : *side) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto in_a = a.find(name), in_b = b.find(name);
    // One that a branch alone sets is, without it, empty or what the environment has.
    const ShellVariable none = scalar_variable({});
    const ShellVariable& left = in_a != a.end() ? in_a->second : none;
    const ShellVariable& right = in_b != b.end() ? in_b->second : none;
    if (std::ranges::equal(left.items, right.items, same_item) && in_a != a.end() &&
        in_b != b.end()) {
      out[name] = left;
    } else if (left.array || right.array) {
      const ShellVariable empty{.array = true};
      out[name] =
          joined_arrays(in_a != a.end() ? left : empty, in_b != b.end() ? right : empty, test);
    } else {
      const ShellText no_text;
      const auto text_of = [&](const ShellVariable& variable) -> const ShellText& {
        return variable.items.empty() ? no_text : variable.items[0].text;
      };
      out[name] = scalar_variable(joined_text(text_of(left), text_of(right), test, doubts));
      out[name].exported = left.exported && right.exported;
    }
  }
  return out;
}

}  // namespace smp::shell
