#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shell/shell_syntax.h"

// The names that the words of a script set, before any word is expanded. Pure.
namespace smp::shell {

// The name in NAME=, NAME+= and NAME[...]=, if a word begins so.
struct ShellAssignment {
  std::string name;
  bool appends = false;
  bool item = false;
  size_t length = 0;  // of its first part
};

// By name; null if two definitions stand in branches of a test with an unknown result.
using ShellFunctions = std::map<std::string, const ShellCommand*>;

std::optional<ShellAssignment> assignment_of(const ShellWordSyntax& word);
std::string bare_word(const ShellWordSyntax& word);  // empty unless it is plain text
std::string shown_words(const std::vector<ShellWordSyntax>& words);  // for messages

// Names that a command, or a function that it calls, may set.
void names_that_may_be_set(const ShellCommand& command, const ShellFunctions& functions,
                           std::set<std::string>& names, int calls = 0);
// Names that arithmetic sets: i++, X = 2.
void names_set_in(const std::string& text, std::set<std::string>& names);

// Whether a loop reads the script's arguments: while [ $# -gt 0 ], while getopts ...
bool reads_arguments(const ShellCommand& command);

}  // namespace smp::shell
