#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shell/shell_syntax.h"
#include "shell/shell_text.h"
#include "shell/shell_variables.h"

namespace smp::shell {

// One argument of a command.
struct ShellField {
  ShellText text = {};
  int32_t doubt = -1;  // why it may be absent, or -1
  uint32_t at = 0;
};

// The whole field is unknown, and no quotes keep it one word.
bool is_alone(const ShellField& field);
// A field in the form in which an array or a function's call holds it.
ShellItem shell_item_of(ShellField field);

// ${NAME:-text} whose NAME nothing sets.
struct ShellDefault {
  std::string name;
  std::string text;
};

// Expands the words of a script: variables, arithmetic and quotes, then fields. Unknown text stays
// in the result as a doubt. Throws ShellError if a text grows beyond all bounds, or IFS was changed
// and the words depend on it: fields are separated by blanks only.
class ShellExpansion {
 public:
  ShellExpansion(ShellVariables& variables, std::vector<ShellDoubt>& doubts)
      : variables_(variables), doubts_(doubts) {}

  std::vector<ShellField> fields(const std::vector<ShellWordSyntax>& words);
  ShellText value(const ShellWordSyntax& word);  // as an assignment takes it: one text
  std::vector<ShellItem> items(const std::vector<ShellWordSyntax>& words);
  std::optional<int64_t> arithmetic(const ShellPart& part, int32_t& doubt);
  std::string pattern(const ShellWordSyntax& word, int32_t& doubt);  // for fnmatch
  int32_t add_doubt(std::string what, uint32_t at, bool unset = false);

  // Arguments of the running function; without a value, the script's arguments, which are unknown.
  void set_arguments(std::optional<std::vector<ShellItem>> arguments) {
    arguments_ = std::move(arguments);
  }
  const std::optional<std::vector<ShellItem>>& arguments() const { return arguments_; }
  void add_default(std::string name, std::string text) {
    defaults_.push_back({std::move(name), std::move(text)});
  }
  const std::vector<ShellDefault>& defaults() const { return defaults_; }

 private:
  ShellText expanded(const std::vector<ShellPart>& parts);
  void variable(const ShellPart& part, ShellText& out);
  std::optional<std::vector<ShellItem>> lookup(const ShellPart& part, int32_t& doubt);
  std::vector<ShellItem> argument(const ShellPart& part, int32_t& doubt);
  int32_t doubt_before(const std::vector<ShellItem>& items, size_t count);
  void put(const std::vector<ShellItem>& items, const ShellPart& part, ShellText& out);
  void put_unknown(int32_t doubt, const ShellPart& part, ShellText& out);
  void put_length(const std::optional<std::vector<ShellItem>>& found, int32_t doubt,
                  const ShellPart& part, ShellText& out);
  void split(const ShellText& text, int32_t doubt, uint32_t at, std::vector<ShellField>& out,
             int depth);
  std::optional<int64_t> number_of(const std::string& name, uint32_t at, int32_t& doubt, int depth);
  std::optional<std::string> other_ifs() const;
  void refuse_other_ifs(const ShellWordSyntax& word);
  void count(size_t cells);

  ShellVariables& variables_;
  std::vector<ShellDoubt>& doubts_;
  std::optional<std::vector<ShellItem>> arguments_;
  std::vector<ShellDefault> defaults_;
  size_t produced_ = 0;
};

}  // namespace smp::shell
