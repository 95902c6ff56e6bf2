#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shell/shell_text.h"

// What a script's variables hold, and what they may hold behind a test that is not known. Pure.
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

// A doubt with the reason of another, for what follows from it.
int32_t derived_doubt(std::vector<ShellDoubt>& doubts, int32_t from);

// What holds behind both branches of a test, whose doubt is `test`: what is equal in them stays,
// the rest is a choice or may be absent.
ShellVariables joined_variables(const ShellVariables& a, const ShellVariables& b, int32_t test,
                                std::vector<ShellDoubt>& doubts);

}  // namespace smp::shell
