#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/text/diagnostics.h"

// The commands of a shell script with their arguments. Nothing is run. Variables, arrays, quotes,
// arithmetic and tests of known values are followed as docs/interchange.md says. A value of the
// environment, the script's arguments or another program is a doubt in the words that use it. A
// construct outside the subset is an error with its line. Pure; safe from any thread.
namespace smp::shell {

// Why a word, or its text, is uncertain.
struct ShellReason {
  std::string what;     // "$LAYERS, which this text does not set"
  text::Place place;    // of the test, or of the word
  bool choice = false;  // by a test, whose branches differ
  bool unset = false;   // a variable or argument that nothing sets
};

struct ShellWord {
  std::string text;
  text::Place place;
  std::optional<ShellReason> unknown = {};  // some of the text is not known
  std::optional<ShellReason> only_if = {};  // there in a branch alone
  bool alone = false;                       // all of it is unknown, and no quotes keep it one word
};

struct ShellLine {
  std::vector<ShellWord> words;
  text::Place place;
  std::optional<ShellReason> only_if;
  bool in_loop = false;
  bool joined = false;        // flags on lines of their own, without a backslash
  std::string here_document;  // what it reads there
};

struct ShellScript {
  std::vector<ShellLine> lines;  // of commands with options, or with a here-document
  std::vector<std::pair<text::Place, std::string>> warnings;
  std::vector<std::pair<std::string, std::string>> defaults;  // NAME, text of ${NAME:-text} taken
  std::vector<std::pair<std::string, ShellLine>> variables;   // those that hold options
  std::optional<text::Place> end;  // where the script ends before its last line
};

ShellScript read_shell_script(std::string_view text, int source, text::Diagnostics& diagnostics);

}  // namespace smp::shell
