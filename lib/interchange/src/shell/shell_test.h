#pragma once

#include <cstdint>

#include "shell/shell_expansion.h"
#include "shell/shell_syntax.h"

namespace smp::shell {

// The result of a test: true, false, or unknown, and why.
struct ShellVerdict {
  enum class Is { kFalse, kTrue, kUnknown };
  Is is = Is::kTrue;
  int32_t doubt = -1;
  bool asks_empty = false;  // -z or -n of a text that is not known

  static ShellVerdict of(bool value) { return {value ? Is::kTrue : Is::kFalse, -1, false}; }
};

ShellVerdict negated(ShellVerdict verdict);

// [ ... ] and test ..., from the fields between; [[ ... ]], from its words. `shown` is the test's
// text, for messages.
ShellVerdict verdict_of_test(const std::vector<ShellField>& fields, const std::string& shown,
                             uint32_t at, ShellExpansion& expansion);
ShellVerdict verdict_of_test(const std::vector<ShellWordSyntax>& words, const std::string& shown,
                             uint32_t at, ShellExpansion& expansion);

}  // namespace smp::shell
