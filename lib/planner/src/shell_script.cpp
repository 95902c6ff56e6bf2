#include "shell_script.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <set>
#include <utility>

#include "shell_expansion.h"
#include "shell_syntax.h"
#include "shell_test.h"
#include "shell_variables.h"

namespace smp {
namespace {

constexpr int kMostSteps = 20000;    // commands that are followed
constexpr int kMostNestedRuns = 32;  // tests, calls, and scripts in scripts
constexpr size_t kMostWords = 100000;

// Commands that are passed over, and taken to succeed.
constexpr std::array kPassed = {"cd",    "mkdir", "echo", "printf", "module", "ml",    "sleep",
                                "conda", "pip",   "pip3", "set",    "ulimit", "pushd", "popd",
                                "true",  ":",     "cp",   "rm",     "mv",     "ln",    "touch",
                                "chmod", "wait",  "date", "tee",    "shopt",  "trap",  "umask",
                                "cat",   "hash",  "alias"};
// Files that set up a user's surroundings.
constexpr std::array kSurroundings = {"activate", ".bashrc",    ".bash_profile",
                                      ".profile", "modules.sh", "conda.sh",
                                      "bash",     "setvars.sh", "profile"};

enum class Ended { kNo, kLoop, kFunction, kScript };

// The name in NAME=, NAME+= and NAME[...]=, if a word begins so.
struct Assigned {
  std::string name;
  bool appends = false;
  bool item = false;
  size_t length = 0;  // of its first part
};

std::optional<Assigned> assigned(const ShellWordSyntax& word) {
  if (word.parts.empty() || word.parts[0].kind != ShellPart::Kind::kText || word.parts[0].quoted ||
      doubt_in(word.parts[0].text)) {
    return std::nullopt;
  }
  const std::string text = plain_text(word.parts[0].text);
  const size_t bracket = text.find('['), equals = text.find('=');
  if (bracket < equals && is_shell_name(text.substr(0, bracket))) {
    return Assigned{text.substr(0, bracket), false, true, text.size()};
  }
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const bool appends = text[equals - 1] == '+';
  std::string name = text.substr(0, equals - (appends ? 1 : 0));
  if (!is_shell_name(name)) return std::nullopt;
  return Assigned{std::move(name), appends, false, equals + 1};
}

std::string bare_word(const ShellWordSyntax& word) {
  if (word.parts.size() != 1 || word.parts[0].kind != ShellPart::Kind::kText) return "";
  return plain_text(word.parts[0].text);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string shown_words(const std::vector<ShellWordSyntax>& words) {
  constexpr size_t kMost = 60;
  std::string out;
  for (const ShellWordSyntax& word : words) {
    if (!out.empty()) out += ' ';
    for (const ShellPart& part : word.parts) {
      out += part.kind == ShellPart::Kind::kText ? plain_text(part.text) : part.shown;
    }
    if (out.size() > kMost) return out.substr(0, kMost) + "...";
  }
  std::ranges::replace(out, '\n', ' ');
  return out;
}

class ShellReader {
 public:
  ShellReader(std::string_view text, int source) : text_(text), source_(source) {
    starts_.push_back(0);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts_.push_back(static_cast<uint32_t>(i) + 1);
    }
  }

  ShellScript read() {
    set_slurm();
    run(shell_text(text_));
    for (const ShellDefault& each : expansion_.defaults()) {
      const std::pair<std::string, std::string> taken(each.name, each.text);
      if (std::ranges::count(out_.defaults, taken) == 0) out_.defaults.push_back(taken);
    }
    guards_.clear();
    loops_ = 0;
    for (const auto& [name, variable] : variables_) {
      ShellPart part{.kind = ShellPart::Kind::kVariable, .name = name, .index = "@"};
      const std::vector<ShellField> fields = expansion_.fields({{.parts = {std::move(part)}}});
      if (!has_options(fields)) continue;
      count_words(fields.size(), fields[0].at);
      out_.variables.emplace_back(name, line_of(fields, fields[0].at));
    }
    return std::move(out_);
  }

  Place place_of(uint32_t at) const {
    const auto next = std::ranges::upper_bound(starts_, at);
    const auto line = static_cast<int>(next - starts_.begin());
    return {source_, line, static_cast<int>(at - *(next - 1)) + 1};
  }

 private:
  void run(const ShellText& text) {
    if (++depth_ > kMostNestedRuns)
      throw ShellError{text.empty() ? 0 : text[0].at, "nested too deep to be read"};
    programs_.push_back(parse_shell(text));
    const ShellCommand& program = programs_.back();
    exec(program);
    --depth_;
  }

  // What #SBATCH lines give a script, as sbatch would.
  void set_slurm() {
    for (const uint32_t start : starts_) {
      std::string_view line = text_.substr(start, text_.substr(start).find('\n'));
      if (!line.starts_with("#SBATCH")) continue;
      line.remove_prefix(7);
      for (const auto& [option, names] :
           {std::pair{"--nodes", std::vector{"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
            std::pair{"-N", std::vector{"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
            std::pair{"--ntasks-per-node", std::vector{"SLURM_NTASKS_PER_NODE"}},
            std::pair{"--gpus-per-node",
                      std::vector{"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}}}) {
        const std::string_view word = option;
        const size_t at = line.find(word);
        if (at == line.npos || at == 0 || (line[at - 1] != ' ' && line[at - 1] != '\t')) continue;
        const size_t begin = line.find_first_not_of("= \t", at + word.size());
        if (begin == line.npos) continue;
        const size_t end = std::min(line.find_first_of(" \t\r#", begin), line.size());
        const std::string_view value = line.substr(begin, end - begin);
        if (value.find_first_not_of("0123456789") != value.npos) continue;
        ShellText text = shell_text(value);
        for (ShellChar& c : text) c.at = start + 7 + static_cast<uint32_t>(begin);
        for (const char* name : names) {
          variables_[name] = scalar_variable(text);
          variables_[name].exported = true;
        }
      }
    }
  }

  ShellVerdict exec(const ShellCommand& command) {
    if (ended_ != Ended::kNo) return ShellVerdict::of(true);
    if (++steps_ > kMostSteps)
      throw ShellError{command.at, "this script has too many steps to be read"};
    switch (command.kind) {
      case ShellCommand::Kind::kSimple: return exec_simple(command);
      case ShellCommand::Kind::kList: return exec_list(command);
      case ShellCommand::Kind::kAndOr: return exec_and_or(command);
      case ShellCommand::Kind::kPipeline: return exec_pipeline(command);
      case ShellCommand::Kind::kNot: return negated(exec(command.children[0]));
      case ShellCommand::Kind::kIf: return exec_if(command, 0);
      case ShellCommand::Kind::kCase: return exec_case(command, 0);
      case ShellCommand::Kind::kLoop: return exec_loop(command);
      case ShellCommand::Kind::kFunction: functions_[command.name] = &command.children[0]; break;
      case ShellCommand::Kind::kSubshell: {
        const ShellVerdict verdict = aside([&] { return exec(command.children[0]); });
        return verdict;
      }
      case ShellCommand::Kind::kTest:
        return verdict_of_test(command.words, fmt::format("[[ {} ]]", shown_words(command.words)),
                               command.at, expansion_);
      case ShellCommand::Kind::kArithmetic: return exec_arithmetic(command.words[0].parts[0]);
    }
    return ShellVerdict::of(true);
  }

  ShellVerdict unknown(std::string what, uint32_t at) {
    return {ShellVerdict::Is::kUnknown, expansion_.add_doubt(std::move(what), at), false};
  }

  // What a subshell sets, and that it ends, stays in it.
  ShellVerdict aside(const std::function<ShellVerdict()>& run) {
    const ShellVariables before = variables_;
    const ShellVerdict verdict = run();
    variables_ = before;
    ended_ = Ended::kNo;
    return verdict;
  }

  ShellVerdict exec_list(const ShellCommand& command) {
    ShellVerdict verdict;
    for (const ShellCommand& child : command.children) verdict = exec(child);
    return verdict;
  }

  ShellVerdict exec_and_or(const ShellCommand& command) {
    ShellVerdict verdict = exec(command.children[0]);
    for (size_t i = 0; i < command.operators.size(); ++i) {
      const ShellCommand& next = command.children[i + 1];
      const bool on_true = command.operators[i] == "&&";
      if (verdict.is == ShellVerdict::Is::kUnknown) {
        const int32_t doubt = verdict.doubt;
        fork(
            verdict, command.at, [&] { exec(next); }, [] {});
        verdict = {ShellVerdict::Is::kUnknown, doubt, false};
      } else if ((verdict.is == ShellVerdict::Is::kTrue) == on_true) {
        verdict = exec(next);
      }
    }
    return verdict;
  }

  ShellVerdict exec_pipeline(const ShellCommand& command) {
    ShellVerdict verdict;
    for (const ShellCommand& child : command.children) verdict = aside([&] { return exec(child); });
    return verdict;
  }

  // Both branches of a test that is not known, and what holds behind either.
  void fork(const ShellVerdict& verdict, uint32_t at, const std::function<void()>& yes,
            const std::function<void()>& no) {
    if (++depth_ > kMostNestedRuns) throw ShellError{at, "nested too deep to be read"};
    const int32_t test = derived_doubt(doubts_, verdict.doubt);
    doubts_[static_cast<size_t>(test)].at = at;
    doubts_[static_cast<size_t>(test)].choice = true;
    guards_.push_back(test);
    const ShellVariables before = variables_;
    yes();
    const Ended first = std::exchange(ended_, Ended::kNo);
    ShellVariables there = std::exchange(variables_, before);
    no();
    const Ended second = std::exchange(ended_, Ended::kNo);
    guards_.pop_back();
    --depth_;
    if (first != Ended::kNo && second != Ended::kNo) {
      ended_ = std::min(first, second);
    } else if (second != Ended::kNo) {
      variables_ = std::move(there);
    } else if (first == Ended::kNo) {
      if (verdict.asks_empty) take_default(doubts_[static_cast<size_t>(verdict.doubt)].name, there);
      variables_ = joined_variables(there, variables_, test, doubts_);
    }
  }

  // if [ -z "$TP" ]; then TP=4; fi: what the branch sets is the default, as with ${TP:-4}.
  void take_default(const std::string& name, ShellVariables& other) {
    if (name.empty() || variables_.contains(name) == other.contains(name)) return;
    const ShellVariable value = variables_.contains(name) ? variables_[name] : other[name];
    if (value.array || value.items.size() != 1) return;
    variables_[name] = other[name] = value;
    expansion_.add_default(name, plain_text(value.items[0].text));
  }

  ShellVerdict exec_if(const ShellCommand& command, size_t at) {
    if (at + 1 == command.children.size()) return exec(command.children[at]);  // else
    if (at >= command.children.size()) return ShellVerdict::of(true);
    const ShellVerdict verdict = exec(command.children[at]);
    if (verdict.is == ShellVerdict::Is::kTrue) return exec(command.children[at + 1]);
    if (verdict.is == ShellVerdict::Is::kFalse) return exec_if(command, at + 2);
    fork(
        verdict, command.children[at].at, [&] { exec(command.children[at + 1]); },
        [&] { exec_if(command, at + 2); });
    return verdict;
  }

  ShellVerdict exec_case(const ShellCommand& command, size_t from) {
    const ShellText word = expansion_.value(command.words[0]);
    const auto word_doubt = doubt_in(word);
    const std::string text = plain_text(word);
    for (size_t arm = from; arm < command.children.size(); ++arm) {
      int32_t doubt = -1;
      bool matches = false, all = false;
      for (const ShellWordSyntax& syntax : command.patterns[arm]) {
        const std::string pattern = expansion_.pattern(syntax, doubt);
        all = all || pattern == "*";
        matches = matches || fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
      }
      if (word_doubt) doubt = *word_doubt;
      if (all || (doubt < 0 && matches)) return exec(command.children[arm]);
      if (doubt < 0) continue;
      fork(
          {ShellVerdict::Is::kUnknown, doubt, false}, command.at,
          [&] { exec(command.children[arm]); }, [&, next = arm + 1] { exec_case(command, next); });
      return {ShellVerdict::Is::kUnknown, doubt, false};
    }
    return ShellVerdict::of(true);
  }

  // A loop is not run: what it sets is not known behind it, and nothing in it may train.
  ShellVerdict exec_loop(const ShellCommand& command) {
    std::set<std::string> names;
    if (!command.name.empty()) names.insert(command.name);
    for (const ShellCommand& child : command.children) collect(child, names, 0);
    const std::string what =
        fmt::format("what the loop on line {} leaves, which is not run", place_of(command.at).line);
    const bool of_arguments = command.children.size() == 2 && reads_arguments(command.children[0]);
    const ShellVariables before = variables_;
    const int32_t doubt = expansion_.add_doubt(what, command.at);
    const auto mark = [&] {
      for (const std::string& name : names) {
        const bool exported = variables_[name].exported;
        variables_[name] = scalar_variable(unknown_text(doubt, command.at));
        variables_[name].exported = exported;
      }
    };
    mark();
    ++loops_;
    for (const ShellCommand& child : command.children) {
      exec(child);
      if (ended_ == Ended::kLoop) ended_ = Ended::kNo;
    }
    --loops_;
    ended_ = Ended::kNo;
    variables_ = before;
    if (!of_arguments) {
      mark();
    } else if (!names.empty()) {
      warn(command.at,
           "this loop reads the script's arguments: what it sets from them is not read");
    }
    return ShellVerdict::of(true);
  }

  // while [ $# -gt 0 ], while getopts ...
  static bool reads_arguments(const ShellCommand& command) {
    for (const ShellWordSyntax& word : command.words) {
      if (bare_word(word) == "getopts") return true;
      for (const ShellPart& part : word.parts) {
        if (part.kind == ShellPart::Kind::kVariable && (part.name == "#" || part.name == "1"))
          return true;
        if (part.kind == ShellPart::Kind::kArithmetic &&
            plain_text(part.text).find('#') != std::string::npos)
          return true;
      }
    }
    return std::ranges::any_of(command.children, reads_arguments);
  }

  // Names that a command may set.
  void collect(const ShellCommand& command, std::set<std::string>& names, int calls) const {
    if (command.kind == ShellCommand::Kind::kLoop && !command.name.empty())
      names.insert(command.name);
    const std::string first = command.words.empty() ? "" : bare_word(command.words[0]);
    static const std::set<std::string> kSetters = {"read",  "mapfile", "readarray", "getopts",
                                                   "unset", "printf",  "let"};
    for (const ShellWordSyntax& word : command.words) {
      if (const auto name = assigned(word)) names.insert(name->name);
      const std::string bare = bare_word(word);
      if (kSetters.contains(first) && is_shell_name(bare)) names.insert(bare);
      for (const ShellPart& part : word.parts) {
        if (part.op.ends_with('=')) names.insert(part.name);
        if (part.kind == ShellPart::Kind::kArithmetic) names_in(plain_text(part.text), names);
      }
    }
    if (const auto found = functions_.find(first); found != functions_.end() && calls < 8) {
      collect(*found->second, names, calls + 1);
    }
    for (const ShellCommand& child : command.children) collect(child, names, calls);
  }

  // Of arithmetic that may assign: i++, X = 2.
  static void names_in(const std::string& text, std::set<std::string>& names) {
    std::string name;
    bool assigns = false;
    for (size_t i = 0; i <= text.size(); ++i) {
      const char c = i < text.size() ? text[i] : ' ';
      const char next = i + 1 < text.size() ? text[i + 1] : ' ';
      const char last = i > 0 ? text[i - 1] : ' ';
      assigns = assigns || (c == '+' && next == '+') || (c == '-' && next == '-') ||
                (c == '=' && next != '=' &&
                 std::string_view("=!<>").find(last) == std::string_view::npos);
    }
    if (!assigns) return;
    for (const char c : text + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
        name += c;
      } else {
        if (is_shell_name(name)) names.insert(name);
        name.clear();
      }
    }
  }

  ShellVerdict exec_arithmetic(const ShellPart& part) {
    std::set<std::string> names;
    names_in(plain_text(part.text), names);
    if (!names.empty()) {
      return forget(names, fmt::format("{}, which is not read", part.shown), part.at);
    }
    int32_t doubt = -1;
    const auto value = expansion_.arithmetic(part, doubt);
    if (!value) return {ShellVerdict::Is::kUnknown, doubt, false};
    return ShellVerdict::of(*value != 0);
  }

  ShellVerdict forget(const std::set<std::string>& names, std::string what, uint32_t at) {
    const ShellVerdict verdict = unknown(std::move(what), at);
    for (const std::string& name : names)
      variables_[name] = scalar_variable(unknown_text(verdict.doubt, at));
    return verdict;
  }

  void warn(uint32_t at, std::string message) {
    out_.warnings.emplace_back(place_of(at), std::move(message));
  }

  void assign(const ShellWordSyntax& word, const Assigned& to, bool exports) {
    const auto before = variables_.find(to.name);
    exports = exports || (before != variables_.end() && before->second.exported);
    if (to.item) {
      forget({to.name}, fmt::format("{}[...]=, which is not read", to.name), word.at);
    } else if (word.is_array) {
      std::vector<ShellItem> items = expansion_.items(word.items);
      ShellVariable& now = variables_[to.name];
      if (!to.appends) now.items.clear();
      now.array = true;
      std::ranges::move(items, std::back_inserter(now.items));
    } else {
      ShellWordSyntax value = word;
      value.parts[0].text.erase(
          value.parts[0].text.begin(),
          value.parts[0].text.begin() + static_cast<std::ptrdiff_t>(to.length));
      if (value.parts[0].text.empty()) value.parts.erase(value.parts.begin());
      ShellText text = expansion_.value(value);
      ShellVariable& now = variables_[to.name];
      if (!to.appends) {
        const bool array = now.array;
        now = scalar_variable(std::move(text));
        now.array = array;
      } else {
        if (now.items.empty()) now.items.emplace_back();
        ShellText& first = now.items[0].text;
        first.insert(first.end(), text.begin(), text.end());
        if (first.size() > kMostWords)
          throw ShellError{word.at, "this value grows too long to be read"};
      }
    }
    variables_[to.name].exported = exports;
  }

  // export, readonly, local, declare, typeset.
  ShellVerdict declare(const ShellCommand& command, size_t at, const std::string& builtin) {
    bool exports = builtin == "export";
    bool odd = false;
    for (size_t i = at + 1; i < command.words.size(); ++i) {
      const ShellWordSyntax& word = command.words[i];
      const std::string bare = bare_word(word);
      if (bare.starts_with('-')) {
        exports = exports || bare.find('x') != std::string::npos;
        odd = odd || bare.find_first_of("AnfFpli") != std::string::npos;
      } else if (const auto to = assigned(word)) {
        keep_for_caller(builtin, to->name);
        if (odd) {
          forget({to->name}, fmt::format("{}, which is not read", shown_words(command.words)),
                 word.at);
        } else {
          assign(word, *to, exports);
        }
      } else if (is_shell_name(bare)) {
        keep_for_caller(builtin, bare);
        if (builtin != "export" && builtin != "readonly") variables_[bare] = scalar_variable({});
        if (exports && variables_.contains(bare)) variables_[bare].exported = true;
      }
    }
    return ShellVerdict::of(true);
  }

  // Of a function's own variables, what they were before the call.
  void keep_for_caller(const std::string& builtin, const std::string& name) {
    if (locals_.empty() || builtin == "export" || builtin == "readonly") return;
    const auto found = variables_.find(name);
    locals_.back().try_emplace(
        name, found != variables_.end() ? std::optional(found->second) : std::nullopt);
  }

  ShellVerdict exec_simple(const ShellCommand& command) {
    size_t first = 0;
    bool runs = false;
    while (first < command.words.size()) {
      if (!assigned(command.words[first])) break;
      ++first;
    }
    const auto has_command = [](const ShellWordSyntax& word) {
      return std::ranges::any_of(
          word.parts, [](const ShellPart& part) { return part.kind == ShellPart::Kind::kCommand; });
    };
    if (first == command.words.size()) {
      for (const ShellWordSyntax& word : command.words) {
        assign(word, *assigned(word), false);
        runs = runs || has_command(word);
      }
      here_documents(command, {});
      return runs ? unknown(fmt::format("{}, which is not run", shown_words(command.words)),
                            command.at)
                  : ShellVerdict::of(true);
    }
    const std::string builtin = bare_word(command.words[first]);
    if (builtin == "export" || builtin == "readonly" || builtin == "local" ||
        builtin == "declare" || builtin == "typeset") {
      return declare(command, first, builtin);
    }
    const std::vector<ShellWordSyntax> words(
        command.words.begin() + static_cast<std::ptrdiff_t>(first), command.words.end());
    std::string shown = shown_words(words);
    if (builtin == "eval") {
      return with_prefix(command, first, [&] { return nested_eval(words, command.at); });
    }
    std::vector<ShellField> fields = expansion_.fields(words);
    here_documents(command, fields);
    if (fields.empty()) return ShellVerdict::of(true);
    count_words(fields.size(), command.at);
    return with_prefix(command, first, [&] { return exec_fields(command, fields, shown); });
  }

  // A=1 command: the command has it, and what stands behind the command has not.
  ShellVerdict with_prefix(const ShellCommand& command, size_t count,
                           const std::function<ShellVerdict()>& run) {
    std::map<std::string, std::optional<ShellVariable>> before;
    for (size_t i = 0; i < count; ++i) {
      const auto to = assigned(command.words[i]);
      const auto found = variables_.find(to->name);
      before.try_emplace(to->name,
                         found != variables_.end() ? std::optional(found->second) : std::nullopt);
      assign(command.words[i], *to, true);
    }
    const ShellVerdict verdict = run();
    for (const auto& [name, value] : before) restore(name, value);
    return verdict;
  }

  void restore(const std::string& name, const std::optional<ShellVariable>& value) {
    if (value) {
      variables_[name] = *value;
    } else {
      variables_.erase(name);
    }
  }

  void count_words(size_t more, uint32_t at) {
    words_ += more;
    if (words_ > kMostWords)
      throw ShellError{at, "this script calls its commands with too many words"};
  }

  ShellVerdict exec_fields(const ShellCommand& command, std::vector<ShellField>& fields,
                           const std::string& shown) {
    const std::string name =
        doubt_in(fields[0].text) || fields[0].doubt >= 0 ? "" : plain_text(fields[0].text);
    if (const auto found = functions_.find(name); found != functions_.end()) {
      return call(*found->second, fields, command.at);
    }
    if (name == "[" || name == "test") {
      std::vector<ShellField> inside(fields.begin() + 1, fields.end());
      if (name == "[") {
        if (inside.empty() || plain_text(inside.back().text) != "]")
          throw ShellError{command.at, "this [ has no ]"};
        inside.pop_back();
      }
      return verdict_of_test(inside, shown, command.at, expansion_);
    }
    if (name == "exit" || name == "return") {
      ended_ = name == "exit" || locals_.empty() ? Ended::kScript : Ended::kFunction;
      if (ended_ == Ended::kScript && guards_.empty() && loops_ == 0 && depth_ == 1) {
        out_.end = place_of(command.at);
      }
      return ShellVerdict::of(true);
    }
    if (name == "break" || name == "continue") {
      if (loops_ > 0) ended_ = Ended::kLoop;
      return ShellVerdict::of(true);
    }
    if (name == "false") return ShellVerdict::of(false);
    if (name == "source" || name == ".") return sourced(fields, command.at);
    static const std::set<std::string> kSetters = {"read",    "mapfile", "readarray",
                                                   "getopts", "unset",   "let"};
    const bool prints_to =
        name == "printf" && fields.size() > 2 && plain_text(fields[1].text) == "-v";
    if (kSetters.contains(name) || prints_to) {
      std::set<std::string> names;
      for (const ShellField& field : fields) {
        const std::string word = plain_text(field.text);
        if (is_shell_name(word)) names.insert(word);
        const std::string array = word.substr(0, word.find('['));
        if (array.size() < word.size() && is_shell_name(array)) {
          forget({array}, fmt::format("{}, which is not read", shown), field.at);
        }
        if (name == "let") names_in(word, names);
      }
      names.erase(name);
      if (name == "unset") {
        for (const std::string& each : names) variables_.erase(each);
        return ShellVerdict::of(true);
      }
      return forget(names, fmt::format("{}, which is not run", shown), command.at);
    }
    if (name == "set" && fields.size() > 1 && plain_text(fields[1].text) == "--") {
      std::vector<ShellText> arguments;
      for (size_t i = 2; i < fields.size(); ++i) {
        if (fields[i].doubt >= 0 || doubt_in(fields[i].text)) return ShellVerdict::of(true);
        arguments.push_back(fields[i].text);
      }
      expansion_.set_arguments(std::move(arguments));
      return ShellVerdict::of(true);
    }
    if (name == "shift" && expansion_.arguments()) {
      std::vector<ShellText> arguments = *expansion_.arguments();
      if (!arguments.empty()) arguments.erase(arguments.begin());
      expansion_.set_arguments(std::move(arguments));
      return ShellVerdict::of(true);
    }
    if (const ShellText* script = script_of(fields)) {
      const ShellText text = *script;
      return aside([&] {
        hide_what_is_not_exported();
        run(text);
        return unknown(fmt::format("{}, which is not run", shown), command.at);
      });
    }
    if (std::ranges::count(kPassed, name) > 0) return ShellVerdict::of(true);
    emit(command, fields, "");
    if (name == "exec" && fields.size() > 1) ended_ = Ended::kScript;
    return unknown(fmt::format("{}, which is not run", shown), command.at);
  }

  // bash -c '...', wherever it stands in a command, and ssh host '...'.
  static const ShellText* script_of(const std::vector<ShellField>& fields) {
    for (size_t i = 0; i + 2 < fields.size(); ++i) {
      const std::string name = base_name(plain_text(fields[i].text));
      if (name != "bash" && name != "sh" && name != "zsh") continue;
      for (size_t j = i + 1; j + 1 < fields.size(); ++j) {
        const std::string option = plain_text(fields[j].text);
        if (!option.starts_with('-')) break;
        if (!option.starts_with("--") && option.ends_with('c')) return &fields[j + 1].text;
      }
    }
    const bool remote = base_name(plain_text(fields[0].text)) == "ssh" && fields.size() > 2;
    const bool script = remote && std::ranges::any_of(fields.back().text, is_shell_blank);
    return script ? &fields.back().text : nullptr;
  }

  void hide_what_is_not_exported() {
    for (auto& [name, variable] : variables_) {
      if (variable.exported) continue;
      const int32_t doubt = expansion_.add_doubt(
          fmt::format("${}, which this text sets and does not export", name), 0);
      variable = scalar_variable(unknown_text(doubt, 0));
    }
  }

  ShellVerdict nested_eval(const std::vector<ShellWordSyntax>& words, uint32_t at) {
    ShellText text;
    for (size_t i = 1; i < words.size(); ++i) {
      const ShellText more = expansion_.value(words[i]);
      if (i > 1) text.push_back({.c = ' ', .at = words[i].at});
      text.insert(text.end(), more.begin(), more.end());
    }
    run(text);
    return unknown(fmt::format("{}, which is not run", shown_words(words)), at);
  }

  ShellVerdict sourced(const std::vector<ShellField>& fields, uint32_t at) {
    if (fields.size() < 2) return ShellVerdict::of(true);
    const std::string path = plain_text(fields[1].text);
    const std::string name = base_name(path);
    if (std::ranges::count(kSurroundings, name) == 0 && !path.starts_with("/etc/")) {
      warn(at, fmt::format("what {} sets is not read", path.empty() ? "this file" : path));
    }
    return ShellVerdict::of(true);
  }

  ShellVerdict call(const ShellCommand& body, const std::vector<ShellField>& fields, uint32_t at) {
    if (++depth_ > kMostNestedRuns)
      throw ShellError{at, "functions call each other too deep to be read"};
    std::vector<ShellText> arguments;
    bool certain = true;
    for (size_t i = 1; i < fields.size(); ++i) {
      certain = certain && fields[i].doubt < 0;
      arguments.push_back(fields[i].text);
      for (ShellChar& c : arguments.back()) c.quoted = false;
    }
    const auto before = expansion_.arguments();
    expansion_.set_arguments(certain ? std::optional(std::move(arguments)) : std::nullopt);
    locals_.emplace_back();
    const ShellVerdict verdict = exec(body);
    for (const auto& [name, value] : locals_.back()) restore(name, value);
    locals_.pop_back();
    if (ended_ == Ended::kFunction) ended_ = Ended::kNo;
    expansion_.set_arguments(before);
    --depth_;
    return verdict;
  }

  void here_documents(const ShellCommand& command, const std::vector<ShellField>& fields) {
    for (const ShellText& text : command.here_documents) emit(command, fields, plain_text(text));
  }

  ShellReason reason_of(int32_t doubt) const {
    const ShellDoubt& of = doubts_[static_cast<size_t>(doubt)];
    return {of.what, place_of(of.at), of.choice, of.unset};
  }

  void emit(const ShellCommand& command, const std::vector<ShellField>& fields,
            std::string document) {
    const bool doubtful = std::ranges::any_of(fields, is_alone);
    if (!has_options(fields) && !doubtful && document.empty()) return;
    ShellLine line = line_of(fields, command.at);
    line.joined = command.joined;
    line.here_document = std::move(document);
    out_.lines.push_back(std::move(line));
  }

  static bool has_options(const std::vector<ShellField>& fields) {
    return std::ranges::any_of(
        fields, [](const ShellField& field) { return plain_text(field.text).starts_with("--"); });
  }

  // All of it is unknown, and no quotes keep it one word.
  static bool is_alone(const ShellField& field) {
    return field.text.size() == 1 && field.text[0].kind == ShellChar::Kind::kUnknown &&
           !field.text[0].quoted;
  }

  ShellLine line_of(const std::vector<ShellField>& fields, uint32_t at) const {
    ShellLine line;
    line.place = place_of(at);
    line.in_loop = loops_ > 0;
    if (!guards_.empty()) line.only_if = reason_of(guards_.back());
    for (const ShellField& field : fields) {
      ShellWord word;
      word.text = plain_text(field.text);
      word.place = place_of(field.at);
      if (const auto doubt = doubt_in(field.text)) word.unknown = reason_of(*doubt);
      if (field.doubt >= 0) word.only_if = reason_of(field.doubt);
      word.alone = is_alone(field);
      line.words.push_back(std::move(word));
    }
    return line;
  }

  std::string_view text_;
  int source_;
  std::vector<uint32_t> starts_;
  ShellVariables variables_;
  std::vector<ShellDoubt> doubts_;
  ShellExpansion expansion_{variables_, doubts_};
  std::deque<ShellCommand> programs_;  // functions_ points into them
  std::map<std::string, const ShellCommand*> functions_;
  std::vector<std::map<std::string, std::optional<ShellVariable>>> locals_;
  std::vector<int32_t> guards_;
  Ended ended_ = Ended::kNo;
  int depth_ = 0;
  int loops_ = 0;
  int steps_ = 0;
  size_t words_ = 0;
  ShellScript out_;
};

}  // namespace

ShellScript read_shell_script(std::string_view text, int source, Diagnostics& diagnostics) {
  ShellReader reader(text, source);
  try {
    return reader.read();
  } catch (const ShellError& error) {
    diagnostics.error(reader.place_of(error.at), error.message);
    return {};
  }
}

}  // namespace smp
