#include "shell/shell_test.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace smp::shell {
namespace {

constexpr int kMostDeepTest = 32;
constexpr std::array<std::string_view, 13> kComparisons = {
    "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "=~", "-ef"};

struct Operand {
  ShellText text;
  int32_t doubt = -1;   // why it is not known
  std::string pattern;  // of [[: as one for fnmatch
  std::string word;     // as plain text, where it is known
};

ShellVerdict both(ShellVerdict a, ShellVerdict b) {
  if (a.is == ShellVerdict::Is::kFalse || b.is == ShellVerdict::Is::kFalse)
    return ShellVerdict::of(false);
  return a.is == ShellVerdict::Is::kUnknown ? a : b;
}

ShellVerdict either(ShellVerdict a, ShellVerdict b) {
  if (a.is == ShellVerdict::Is::kTrue || b.is == ShellVerdict::Is::kTrue)
    return ShellVerdict::of(true);
  return a.is == ShellVerdict::Is::kUnknown ? a : b;
}

class TestReader {
 public:
  TestReader(std::vector<Operand> operands, bool brackets, const std::string& shown, uint32_t at,
             ShellExpansion& expansion)
      : operands_(std::move(operands)),
        brackets_(brackets),
        shown_(shown),
        place_(at),
        expansion_(expansion) {}

  ShellVerdict read() {
    if (operands_.empty()) return ShellVerdict::of(false);
    const ShellVerdict verdict = any();
    return good_ && at_ == operands_.size() ? verdict : unread();
  }

 private:
  ShellVerdict unread() {
    return unknown(expansion_.add_doubt(shown_ + ", which smp does not evaluate", place_));
  }
  static ShellVerdict unknown(int32_t doubt) { return {ShellVerdict::Is::kUnknown, doubt, false}; }

  bool is(size_t at, std::string_view word) const {
    return at < operands_.size() && operands_[at].doubt < 0 && operands_[at].word == word;
  }
  bool take(std::string_view word) {
    if (!is(at_, word)) return false;
    ++at_;
    return true;
  }
  bool compares(size_t at) const {
    return at < operands_.size() && operands_[at].doubt < 0 &&
           std::ranges::count(kComparisons, operands_[at].word) > 0;
  }

  ShellVerdict failed() {
    good_ = false;
    at_ = operands_.size();
    return ShellVerdict::of(false);
  }

  ShellVerdict any() {
    if (++depth_ > kMostDeepTest) return failed();
    ShellVerdict verdict = all();
    while (take(brackets_ ? "||" : "-o")) verdict = either(verdict, all());
    --depth_;
    return verdict;
  }

  ShellVerdict all() {
    ShellVerdict verdict = one();
    while (take(brackets_ ? "&&" : "-a")) verdict = both(verdict, one());
    return verdict;
  }

  ShellVerdict one() {
    if (++depth_ > kMostDeepTest) return failed();
    ShellVerdict verdict;
    if (at_ >= operands_.size()) {
      verdict = failed();
    } else if (compares(at_ + 1) && at_ + 2 < operands_.size()) {
      at_ += 3;
      verdict = compared(operands_[at_ - 3], operands_[at_ - 2].word, operands_[at_ - 1]);
    } else if (take("!")) {
      verdict = negated(one());
    } else if (take("(")) {
      verdict = any();
      if (!take(")")) verdict = failed();
    } else if (const std::string& word = operands_[at_].word; operands_[at_].doubt < 0 &&
                                                              word.size() == 2 && word[0] == '-' &&
                                                              at_ + 1 < operands_.size()) {
      at_ += 2;
      verdict = about(word[1], operands_[at_ - 1]);
    } else {
      verdict = filled(operands_[at_++]);
    }
    --depth_;
    return verdict;
  }

  ShellVerdict filled(const Operand& operand) {
    const bool plain = std::ranges::any_of(
        operand.text, [](const ShellChar& c) { return c.kind == ShellChar::Kind::kPlain; });
    if (plain) return ShellVerdict::of(true);
    if (operand.doubt < 0) return ShellVerdict::of(false);
    return {ShellVerdict::Is::kUnknown, operand.doubt, operands_.size() <= 2};
  }

  ShellVerdict about(char flag, const Operand& operand) {
    if (flag == 'n') return filled(operand);
    if (flag == 'z') return negated(filled(operand));
    if (std::string_view("abcdefghkprstuwxLNOGS").find(flag) != std::string_view::npos) {
      return unknown(
          expansion_.add_doubt(shown_ + ", a test of files, which smp does not read", place_));
    }
    return unread();
  }

  ShellVerdict compared(const Operand& left, const std::string& op, const Operand& right) {
    if (op == "=~" || op == "-ef") return unread();
    if (left.doubt >= 0) return unknown(left.doubt);
    if (right.doubt >= 0) return unknown(right.doubt);
    if (op == "=" || op == "==" || op == "!=") {
      const bool equal = brackets_ ? fnmatch(right.pattern.c_str(), left.word.c_str(), 0) == 0
                                   : left.word == right.word;
      return ShellVerdict::of(equal == (op != "!="));
    }
    if (op == "<") return ShellVerdict::of(left.word < right.word);
    if (op == ">") return ShellVerdict::of(left.word > right.word);
    int32_t doubt = -1;
    const auto a = number(left, doubt), b = number(right, doubt);
    if (doubt >= 0) return unknown(doubt);
    if (!a || !b) return unread();
    return ShellVerdict::of(op == "-eq"   ? *a == *b
                            : op == "-ne" ? *a != *b
                            : op == "-lt" ? *a < *b
                            : op == "-le" ? *a <= *b
                            : op == "-gt" ? *a > *b
                                          : *a >= *b);
  }

  std::optional<int64_t> number(const Operand& operand, int32_t& doubt) {
    if (brackets_) {
      ShellPart part{.kind = ShellPart::Kind::kArithmetic,
                     .at = place_,
                     .text = operand.text,
                     .shown = shown_};
      for (ShellChar& c : part.text) {
        if (c.c == '$' || c.c == '`') return std::nullopt;
      }
      return expansion_.arithmetic(part, doubt);
    }
    int64_t value = 0;
    const std::string& word = operand.word;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc() && end == word.data() + word.size() ? std::optional(value)
                                                                    : std::nullopt;
  }

  std::vector<Operand> operands_;
  bool brackets_;
  const std::string& shown_;
  uint32_t place_;
  ShellExpansion& expansion_;
  size_t at_ = 0;
  int depth_ = 0;
  bool good_ = true;
};

}  // namespace

ShellVerdict negated(ShellVerdict verdict) {
  if (verdict.is == ShellVerdict::Is::kUnknown) return verdict;
  return ShellVerdict::of(verdict.is == ShellVerdict::Is::kFalse);
}

ShellVerdict verdict_of_test(const std::vector<ShellField>& fields, const std::string& shown,
                             uint32_t at, ShellExpansion& expansion) {
  std::vector<Operand> operands;
  for (const ShellField& field : fields) {
    if (field.doubt >= 0) return {ShellVerdict::Is::kUnknown, field.doubt, false};
    Operand operand{field.text, doubt_in(field.text).value_or(-1), "", plain_text(field.text)};
    operands.push_back(std::move(operand));
  }
  return TestReader(std::move(operands), false, shown, at, expansion).read();
}

ShellVerdict verdict_of_test(const std::vector<ShellWordSyntax>& words, const std::string& shown,
                             uint32_t at, ShellExpansion& expansion) {
  std::vector<Operand> operands;
  for (const ShellWordSyntax& word : words) {
    Operand operand{expansion.value(word), -1, "", ""};
    int32_t unknown = -1;
    operand.pattern = expansion.pattern(word, unknown);
    operand.word = plain_text(operand.text);
    operand.doubt = doubt_in(operand.text).value_or(-1);
    operands.push_back(std::move(operand));
  }
  return TestReader(std::move(operands), true, shown, at, expansion).read();
}

}  // namespace smp::shell
