#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shell/shell_text.h"
#include "smp/plan/text/diagnostics.h"

// The subset of the shell's language that is read, as a tree. docs/interchange.md describes the
// subset. Pure; safe from any thread.
namespace smp::shell {

// A mistake, or a construct that is not read, with its byte of the script.
struct ShellError {
  uint32_t at = 0;
  std::string message;
};

struct ShellPart {
  // kCommand: $(...), `...`, and expansions that are not read.
  enum class Kind { kText, kVariable, kArithmetic, kCommand };
  Kind kind = Kind::kText;
  bool quoted = false;
  uint32_t at = 0;
  ShellText text = {};     // of kText; of kArithmetic: the expression
  std::string name = {};   // of a variable: "TP", "1", "@"
  std::string op = {};     // "", ":-", "-", ":=", "=", ":+", "+", ":?", "?", or "#": its length
  std::string index = {};  // "" or "@", "*", "0"
  std::vector<ShellPart> word = {};  // behind the operator
  std::string shown = {};            // as it stands, for messages
};

struct ShellWordSyntax {
  std::vector<ShellPart> parts = {};
  uint32_t at = 0;
  bool is_array = false;  // NAME=(...): parts hold NAME=, items what is inside
  std::vector<ShellWordSyntax> items = {};
};

struct ShellCommand {
  enum class Kind {
    kSimple,      // words; its assignments are words too
    kList,        // children, one after the other
    kAndOr,       // children with operators between
    kPipeline,    // children
    kNot,         // of one child
    kIf,          // condition, body, condition, body, ..., perhaps a last body
    kCase,        // words[0]; children with their patterns
    kLoop,        // for, while, until, select: `name`, children: condition (of while), body
    kFunction,    // `name`, one child
    kSubshell,    // one child
    kTest,        // [[ ... ]]: words, with && || ( ) < > ! as words of one unquoted part
    kArithmetic,  // (( ... )): words[0].parts[0]
  };
  Kind kind = Kind::kSimple;
  uint32_t at = 0;
  std::vector<ShellWordSyntax> words = {};
  std::vector<ShellCommand> children = {};
  std::vector<std::string> operators = {};                  // of kAndOr: "&&", "||"
  std::vector<std::vector<ShellWordSyntax>> patterns = {};  // of kCase, one list a child
  std::string name = {};
  std::vector<ShellText> here_documents = {};
  bool joined = false;  // flags stand on lines of their own, without a backslash before them
};

// Throws ShellError.
ShellCommand parse_shell(const ShellText& text);

}  // namespace smp::shell
