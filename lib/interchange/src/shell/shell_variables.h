#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shell/shell_text.h"

// The values of a script's variables, and their possible values after a test with an unknown
// result. Pure.
namespace smp::shell {

struct ShellItem {
  ShellText text;
  int32_t doubt = -1;  // why the item may be absent, or -1
  bool many = false;   // nothing is known: it may stand for any number of items
};

struct ShellVariable {
  bool array = false;
  bool exported = false;
  std::vector<ShellItem> items = {};  // one, unless it is an array
};

using ShellVariables = std::map<std::string, ShellVariable>;

ShellVariable scalar_variable(ShellText text);
ShellText unknown_text(int32_t doubt, uint32_t at);

// A doubt with the reason of another, for a value that depends on it.
int32_t derived_doubt(std::vector<ShellDoubt>& doubts, int32_t from);

// Joins both branches of a test, whose doubt is `test`. A value that is equal in both stays; any
// other is a choice or may be absent.
ShellVariables joined_variables(const ShellVariables& a, const ShellVariables& b, int32_t test,
                                std::vector<ShellDoubt>& doubts);

}  // namespace smp::shell
