#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "shell/shell_reader.h"

// Assignments, what the shell itself does, functions, and scripts in scripts.
namespace smp::shell {
namespace {

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

std::string program_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

void ShellReader::assign(const ShellWordSyntax& word, const ShellAssignment& to, bool exports) {
  const auto before = variables_.find(to.name);
  exports = exports || (before != variables_.end() && before->second.exported);
  if (to.item) {
    forget({to.name}, fmt::format("{}[...]=, which smp does not evaluate", to.name), word.at);
  } else if (word.is_array) {
    std::vector<ShellItem> items = expansion_.items(word.items);
    ShellVariable& now = variables_[to.name];
    if (!to.appends) now.items.clear();
    now.array = true;
    std::ranges::move(items, std::back_inserter(now.items));
  } else {
    ShellWordSyntax value = word;
    value.parts[0].text.erase(value.parts[0].text.begin(),
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
      if (first.size() > kMostWords) throw ShellError{word.at, "this value is too long to import"};
    }
  }
  variables_[to.name].exported = exports;
}

// export, readonly, local, declare, typeset.
ShellVerdict ShellReader::declare(const ShellCommand& command, size_t at,
                                  const std::string& builtin) {
  bool exports = builtin == "export";
  bool odd = false;
  for (size_t i = at + 1; i < command.words.size(); ++i) {
    const ShellWordSyntax& word = command.words[i];
    const std::string bare = bare_word(word);
    if (bare.starts_with('-')) {
      exports = exports || bare.find('x') != std::string::npos;
      odd = odd || bare.find_first_of("AfFpli") != std::string::npos;
      if (builtin != "export" && bare.find('n') != std::string::npos) {
        throw ShellError{word.at,
                         "-n makes a name refer to another name, which smp does not support: write "
                         "the other name"};
      }
    } else if (const auto to = assignment_of(word)) {
      keep_for_caller(builtin, to->name);
      if (odd) {
        forget({to->name},
               fmt::format("{}, which smp does not evaluate", shown_words(command.words)), word.at);
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

// The values of a function's own variables before the call.
void ShellReader::keep_for_caller(const std::string& builtin, const std::string& name) {
  if (locals_.empty() || builtin == "export" || builtin == "readonly") return;
  const auto found = variables_.find(name);
  locals_.back().try_emplace(
      name, found != variables_.end() ? std::optional(found->second) : std::nullopt);
}

ShellVerdict ShellReader::exec_simple(const ShellCommand& command) {
  size_t first = 0;
  bool runs = false;
  while (first < command.words.size()) {
    if (!assignment_of(command.words[first])) break;
    ++first;
  }
  const auto has_command = [](const ShellWordSyntax& word) {
    return std::ranges::any_of(
        word.parts, [](const ShellPart& part) { return part.kind == ShellPart::Kind::kCommand; });
  };
  if (first == command.words.size()) {
    for (const ShellWordSyntax& word : command.words) {
      assign(word, *assignment_of(word), false);
      runs = runs || has_command(word);
    }
    here_documents(command, {});
    return runs ? unknown(fmt::format("{}, which smp does not run", shown_words(command.words)),
                          command.at)
                : ShellVerdict::of(true);
  }
  const std::string builtin = bare_word(command.words[first]);
  if (builtin == "export" || builtin == "readonly" || builtin == "local" || builtin == "declare" ||
      builtin == "typeset") {
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
ShellVerdict ShellReader::with_prefix(const ShellCommand& command, size_t count,
                                      const std::function<ShellVerdict()>& run) {
  std::map<std::string, std::optional<ShellVariable>> before;
  for (size_t i = 0; i < count; ++i) {
    const auto to = assignment_of(command.words[i]);
    const auto found = variables_.find(to->name);
    before.try_emplace(to->name,
                       found != variables_.end() ? std::optional(found->second) : std::nullopt);
    assign(command.words[i], *to, true);
  }
  const ShellVerdict verdict = run();
  for (const auto& [name, value] : before) restore(name, value);
  return verdict;
}

void ShellReader::restore(const std::string& name, const std::optional<ShellVariable>& value) {
  if (value) {
    variables_[name] = *value;
  } else {
    variables_.erase(name);
  }
}

void ShellReader::count_words(size_t more, uint32_t at) {
  words_ += more;
  if (words_ > kMostWords)
    throw ShellError{at, "the commands of this script have too many words to import"};
}

ShellVerdict ShellReader::exec_fields(const ShellCommand& command, std::vector<ShellField>& fields,
                                      const std::string& shown) {
  const std::string name =
      doubt_in(fields[0].text) || fields[0].doubt >= 0 ? "" : plain_text(fields[0].text);
  if (const auto found = functions_.find(name); found != functions_.end()) {
    if (found->second == nullptr) {
      throw ShellError{
          command.at,
          fmt::format("which function {} this line calls depends on an unknown test", name)};
    }
    return call(*found->second, fields, command.at);
  }
  if (const auto verdict = exec_builtin(name, fields, shown, command.at)) return *verdict;
  if (const ShellText* script = script_of(fields)) {
    const ShellText text = *script;
    return aside([&] {
      hide_what_is_not_exported();
      run(text);
      return unknown(fmt::format("{}, which smp does not run", shown), command.at);
    });
  }
  if (std::ranges::count(kPassed, name) > 0) return ShellVerdict::of(true);
  emit(command, fields, "");
  if (name == "exec" && fields.size() > 1) ended_ = End::kScript;
  return unknown(fmt::format("{}, which smp does not run", shown), command.at);
}

// Runs a command of the shell itself; nothing for other commands.
std::optional<ShellVerdict> ShellReader::exec_builtin(const std::string& name,
                                                      const std::vector<ShellField>& fields,
                                                      const std::string& shown, uint32_t at) {
  if (name == "[" || name == "test") {
    std::vector<ShellField> inside(fields.begin() + 1, fields.end());
    if (name == "[") {
      if (inside.empty() || plain_text(inside.back().text) != "]") {
        throw ShellError{at, "] is missing for this ["};
      }
      inside.pop_back();
    }
    return verdict_of_test(inside, shown, at, expansion_);
  }
  if (ends(name, at)) return ShellVerdict::of(true);
  if (name == "false") return ShellVerdict::of(false);
  if (name == "source" || name == ".") return sourced(fields, at);
  static const std::set<std::string> kSetters = {"read",    "mapfile", "readarray",
                                                 "getopts", "unset",   "let"};
  const bool prints_to =
      name == "printf" && fields.size() > 2 && plain_text(fields[1].text) == "-v";
  if (kSetters.contains(name) || prints_to) return set_names(name, fields, shown, at);
  const bool sets = name == "set" && fields.size() > 1 && plain_text(fields[1].text) == "--";
  if (sets || name == "shift") {
    set_arguments(fields);
    return ShellVerdict::of(true);
  }
  return std::nullopt;
}

bool ShellReader::ends(const std::string& name, uint32_t at) {
  if (name == "exit" || name == "return") {
    ended_ = name == "exit" || locals_.empty() ? End::kScript : End::kFunction;
    if (ended_ == End::kScript && guards_.empty() && loops_ == 0 && depth_ == 1) {
      out_.end = place_of(at);
    }
    return true;
  }
  if (name != "break" && name != "continue") return false;
  if (loops_ > 0) ended_ = End::kLoop;
  return true;
}

// read, unset, let and others that name what they set.
ShellVerdict ShellReader::set_names(const std::string& name, const std::vector<ShellField>& fields,
                                    const std::string& shown, uint32_t at) {
  std::set<std::string> names, items;
  for (size_t i = 1; i < fields.size(); ++i) {
    const std::string word = plain_text(fields[i].text);
    const std::string array = word.substr(0, word.find('['));
    if (is_shell_name(word)) names.insert(word);
    if (array.size() < word.size() && is_shell_name(array)) items.insert(array);
    if (name == "let") names_set_in(word, names);
  }
  if (!items.empty()) forget(items, fmt::format("{}, which smp does not evaluate", shown), at);
  if (name != "unset") return forget(names, fmt::format("{}, which smp does not run", shown), at);
  for (const std::string& each : names) variables_.erase(each);
  return ShellVerdict::of(true);
}

// set -- and shift. What a branch does to them is not followed.
void ShellReader::set_arguments(const std::vector<ShellField>& fields) {
  const bool shifts = plain_text(fields[0].text) == "shift";
  std::vector<ShellItem> arguments;
  if (shifts) arguments = expansion_.arguments().value_or(std::vector<ShellItem>{});
  bool known = guards_.empty() && (!shifts || (expansion_.arguments() && fields.size() == 1));
  if (shifts && !arguments.empty()) {
    known = known && !arguments.front().many;
    arguments.erase(arguments.begin());
  }
  for (size_t i = 2; !shifts && i < fields.size(); ++i) {
    known = known && fields[i].doubt < 0 && !doubt_in(fields[i].text);
    arguments.push_back(shell_item_of(fields[i]));
  }
  expansion_.set_arguments(known ? std::optional(std::move(arguments)) : std::nullopt);
}

// bash -c '...', wherever it stands in a command, and ssh host '...'.
const ShellText* ShellReader::script_of(const std::vector<ShellField>& fields) {
  for (size_t i = 0; i + 2 < fields.size(); ++i) {
    const std::string name = program_name(plain_text(fields[i].text));
    if (name != "bash" && name != "sh" && name != "zsh") continue;
    for (size_t j = i + 1; j + 1 < fields.size(); ++j) {
      const std::string option = plain_text(fields[j].text);
      if (!option.starts_with('-')) break;
      if (!option.starts_with("--") && option.ends_with('c')) return &fields[j + 1].text;
    }
  }
  const bool remote = program_name(plain_text(fields[0].text)) == "ssh" && fields.size() > 2;
  const bool script = remote && std::ranges::any_of(fields.back().text, is_shell_blank);
  return script ? &fields.back().text : nullptr;
}

void ShellReader::hide_what_is_not_exported() {
  for (auto& [name, variable] : variables_) {
    if (variable.exported) continue;
    const int32_t doubt =
        expansion_.add_doubt(fmt::format("${}, which this text sets but does not export", name), 0);
    variable = scalar_variable(unknown_text(doubt, 0));
  }
  set_ifs();
}

ShellVerdict ShellReader::nested_eval(const std::vector<ShellWordSyntax>& words, uint32_t at) {
  ShellText text;
  for (size_t i = 1; i < words.size(); ++i) {
    const ShellText more = expansion_.value(words[i]);
    if (i > 1) text.push_back({.c = ' ', .at = words[i].at});
    text.insert(text.end(), more.begin(), more.end());
  }
  run(text);
  return unknown(fmt::format("{}, which smp does not run", shown_words(words)), at);
}

ShellVerdict ShellReader::sourced(const std::vector<ShellField>& fields, uint32_t at) {
  if (fields.size() < 2) return ShellVerdict::of(true);
  const std::string path = plain_text(fields[1].text);
  const std::string name = program_name(path);
  if (std::ranges::count(kSurroundings, name) == 0 && !path.starts_with("/etc/")) {
    warn(at, fmt::format("variables that {} sets are not read", path.empty() ? "this file" : path));
  }
  return ShellVerdict::of(true);
}

ShellVerdict ShellReader::call(const ShellCommand& body, const std::vector<ShellField>& fields,
                               uint32_t at) {
  if (++depth_ > kMostNested) throw ShellError{at, "function calls nest too deeply to import"};
  std::vector<ShellItem> arguments;
  bool certain = true;
  for (size_t i = 1; i < fields.size(); ++i) {
    certain = certain && fields[i].doubt < 0;
    arguments.push_back(shell_item_of(fields[i]));
  }
  const auto before = expansion_.arguments();
  expansion_.set_arguments(certain ? std::optional(std::move(arguments)) : std::nullopt);
  locals_.emplace_back();
  const ShellVerdict verdict = exec(body);
  for (const auto& [name, value] : locals_.back()) restore(name, value);
  locals_.pop_back();
  if (ended_ == End::kFunction) ended_ = End::kNo;
  expansion_.set_arguments(before);
  --depth_;
  return verdict;
}

}  // namespace smp::shell
