#include "shell/shell_arithmetic.h"

#include <cctype>
#include <charconv>
#include <limits>

namespace smp::shell {
namespace {

constexpr int kMostDeepArithmetic = 64;

// Text that is not read sets `good_` to false; the value then does not matter.
class ShellArithmetic {
 public:
  ShellArithmetic(std::string_view text,
                  const std::function<std::optional<int64_t>(const std::string&)>& value_of)
      : text_(text), value_of_(value_of) {}

  std::optional<int64_t> value() {
    const int64_t value = choice();
    skip();
    return good_ && at_ == text_.size() ? std::optional(value) : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  bool take(std::string_view op) {
    skip();
    if (!text_.substr(at_).starts_with(op)) return false;
    at_ += op.size();
    return true;
  }

  // An operator of one character that is not the first of a longer one.
  bool take_one(char op, std::string_view not_before) {
    skip();
    if (at_ >= text_.size() || text_[at_] != op) return false;
    const char after = at_ + 1 < text_.size() ? text_[at_ + 1] : ' ';
    if (not_before.find(after) != std::string_view::npos) return false;
    ++at_;
    return true;
  }

  int64_t failed() {
    good_ = false;
    return 0;
  }

  int64_t choice() {
    if (++depth_ > kMostDeepArithmetic) return failed();
    int64_t value = any();
    if (take_one('?', "")) {
      const int64_t yes = choice();
      if (!take(":")) return failed();
      const int64_t no = choice();
      value = value != 0 ? yes : no;
    }
    --depth_;
    return value;
  }

  int64_t any() {
    int64_t value = all();
    while (take("||")) {
      const int64_t right = all();
      value = value != 0 || right != 0 ? 1 : 0;
    }
    return value;
  }

  int64_t all() {
    int64_t value = equality();
    while (take("&&")) {
      const int64_t right = equality();
      value = value != 0 && right != 0 ? 1 : 0;
    }
    return value;
  }

  int64_t equality() {
    int64_t value = comparison();
    while (true) {
      if (take("==")) {
        value = value == comparison() ? 1 : 0;
      } else if (take("!=")) {
        value = value != comparison() ? 1 : 0;
      } else {
        return value;
      }
    }
  }

  int64_t comparison() {
    int64_t value = sum();
    while (true) {
      if (take("<=")) {
        value = value <= sum() ? 1 : 0;
      } else if (take(">=")) {
        value = value >= sum() ? 1 : 0;
      } else if (take_one('<', "<")) {
        value = value < sum() ? 1 : 0;
      } else if (take_one('>', ">")) {
        value = value > sum() ? 1 : 0;
      } else {
        return value;
      }
    }
  }

  int64_t sum() {
    int64_t value = product();
    while (true) {
      if (take_one('+', "+=")) {
        if (__builtin_add_overflow(value, product(), &value)) return failed();
      } else if (take_one('-', "-=")) {
        if (__builtin_sub_overflow(value, product(), &value)) return failed();
      } else {
        return value;
      }
    }
  }

  int64_t product() {
    int64_t value = power();
    while (true) {
      if (take_one('*', "*=")) {
        if (__builtin_mul_overflow(value, power(), &value)) return failed();
      } else if (take_one('/', "=")) {
        const int64_t by = power();
        if (!divides(value, by)) return failed();
        value /= by;
      } else if (take_one('%', "=")) {
        const int64_t by = power();
        if (!divides(value, by)) return failed();
        value %= by;
      } else {
        return value;
      }
    }
  }

  static bool divides(int64_t value, int64_t by) {
    return by != 0 && (by != -1 || value != std::numeric_limits<int64_t>::min());
  }

  int64_t power() {
    const int64_t base = sign();
    if (!take("**")) return base;
    if (++depth_ > kMostDeepArithmetic) return failed();
    const int64_t exponent = power();
    --depth_;
    if (exponent < 0 || exponent > 63) return failed();
    int64_t value = 1;
    for (int64_t i = 0; i < exponent; ++i) {
      if (__builtin_mul_overflow(value, base, &value)) return failed();
    }
    return value;
  }

  int64_t sign() {
    if (++depth_ > kMostDeepArithmetic) return failed();
    int64_t value = 0;
    if (take_one('-', "-=")) {
      const int64_t of = sign();
      if (__builtin_sub_overflow(int64_t{0}, of, &value)) return failed();
    } else if (take_one('+', "+=")) {
      value = sign();
    } else if (take_one('!', "=")) {
      value = sign() == 0 ? 1 : 0;
    } else {
      value = operand();
    }
    --depth_;
    return value;
  }

  int64_t operand() {
    if (take("(")) {
      const int64_t value = choice();
      return take(")") ? value : failed();
    }
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) return failed();
    if (std::isdigit(static_cast<unsigned char>(word[0])) == 0) {
      const auto value = value_of_(std::string(word));
      return value ? *value : failed();
    }
    return number(word);
  }

  // 0x10 is 16 and 010 is 8, as in the shell.
  int64_t number(std::string_view word) {
    int base = 10;
    if (word.starts_with("0x") || word.starts_with("0X")) {
      base = 16;
      word.remove_prefix(2);
    } else if (word.size() > 1 && word[0] == '0') {
      base = 8;
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    return error == std::errc() && end == word.data() + word.size() ? value : failed();
  }

  std::string_view text_;
  const std::function<std::optional<int64_t>(const std::string&)>& value_of_;
  size_t at_ = 0;
  int depth_ = 0;
  bool good_ = true;
};

}  // namespace

std::optional<int64_t> shell_arithmetic(
    std::string_view text,
    const std::function<std::optional<int64_t>(const std::string&)>& value_of) {
  return ShellArithmetic(text, value_of).value();
}

}  // namespace smp::shell
