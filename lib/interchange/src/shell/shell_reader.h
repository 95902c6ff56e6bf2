#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shell/shell_expansion.h"
#include "shell/shell_names.h"
#include "shell/shell_script.h"
#include "shell/shell_syntax.h"
#include "shell/shell_test.h"
#include "shell/shell_variables.h"

namespace smp::shell {

// Follows a script's commands in their order, without running any. After a test with an unknown
// result both branches are followed, one after the other, and their values are joined. Control flow
// is in shell_control.cpp, commands in shell_command.cpp, results in shell_reader.cpp.
class ShellReader {
 public:
  ShellReader(std::string_view text, int source);
  ShellScript read();
  text::Place place_of(uint32_t at) const;

 private:
  static constexpr int kMostNested = 256;  // tests, calls, and scripts in scripts
  enum class End { kNo, kLoop, kFunction, kScript };

  void set_ifs();
  void set_slurm();
  void here_documents(const ShellCommand& command, const std::vector<ShellField>& fields);
  void emit(const ShellCommand& command, const std::vector<ShellField>& fields,
            std::string document);
  ShellLine line_of(const std::vector<ShellField>& fields, uint32_t at) const;
  ShellReason reason_of(int32_t doubt) const;
  static bool has_options(const std::vector<ShellField>& fields);

  void run(const ShellText& text);
  ShellVerdict exec(const ShellCommand& command);
  ShellVerdict unknown(std::string what, uint32_t at);
  void warn(uint32_t at, std::string message);
  ShellVerdict forget(const std::set<std::string>& names, std::string what, uint32_t at);
  ShellVerdict aside(const std::function<ShellVerdict()>& run);
  ShellVerdict exec_list(const ShellCommand& command);
  ShellVerdict exec_and_or(const ShellCommand& command);
  ShellVerdict exec_pipeline(const ShellCommand& command);
  void fork(const ShellVerdict& verdict, uint32_t at, const std::function<void()>& yes,
            const std::function<void()>& no);
  void take_default(const std::string& name, ShellVariables& other);
  ShellVerdict exec_if(const ShellCommand& command, size_t at);
  ShellVerdict exec_case(const ShellCommand& command, size_t from);
  ShellVerdict exec_loop(const ShellCommand& command);
  ShellVerdict exec_arithmetic(const ShellPart& part);
  void define(const ShellCommand& function);

  void assign(const ShellWordSyntax& word, const ShellAssignment& to, bool exports);
  ShellVerdict declare(const ShellCommand& command, size_t at, const std::string& builtin);
  void keep_for_caller(const std::string& builtin, const std::string& name);
  ShellVerdict exec_simple(const ShellCommand& command);
  ShellVerdict with_prefix(const ShellCommand& command, size_t count,
                           const std::function<ShellVerdict()>& run);
  void restore(const std::string& name, const std::optional<ShellVariable>& value);
  void count_words(size_t more, uint32_t at);
  ShellVerdict exec_fields(const ShellCommand& command, std::vector<ShellField>& fields,
                           const std::string& shown);
  std::optional<ShellVerdict> exec_builtin(const std::string& name,
                                           const std::vector<ShellField>& fields,
                                           const std::string& shown, uint32_t at);
  bool ends(const std::string& name, uint32_t at);
  ShellVerdict set_names(const std::string& name, const std::vector<ShellField>& fields,
                         const std::string& shown, uint32_t at);
  void set_arguments(const std::vector<ShellField>& fields);
  static const ShellText* script_of(const std::vector<ShellField>& fields);
  void hide_what_is_not_exported();
  ShellVerdict nested_eval(const std::vector<ShellWordSyntax>& words, uint32_t at);
  ShellVerdict sourced(const std::vector<ShellField>& fields, uint32_t at);
  ShellVerdict call(const ShellCommand& body, const std::vector<ShellField>& fields, uint32_t at);

  std::string_view text_;
  int source_;
  std::vector<uint32_t> starts_;
  ShellVariables variables_;
  std::vector<ShellDoubt> doubts_;
  ShellExpansion expansion_{variables_, doubts_};
  std::deque<ShellCommand> programs_;  // functions_ points into them
  ShellFunctions functions_;
  std::vector<std::map<std::string, std::optional<ShellVariable>>> locals_;
  std::vector<int32_t> guards_;
  End ended_ = End::kNo;
  int depth_ = 0;
  int loops_ = 0;
  int steps_ = 0;
  size_t words_ = 0;
  ShellScript out_;
};

}  // namespace smp::shell
