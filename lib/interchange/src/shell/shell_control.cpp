#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "shell/shell_reader.h"

// Lists, branches, loops and subshells.
namespace smp::shell {
namespace {

constexpr int kMostSteps = 20000;  // commands that are followed

}  // namespace

void ShellReader::run(const ShellText& text) {
  if (++depth_ > kMostNested)
    throw ShellError{text.empty() ? 0 : text[0].at, "the script nests too deeply to import"};
  programs_.push_back(parse_shell(text));
  const ShellCommand& program = programs_.back();
  exec(program);
  --depth_;
}

ShellVerdict ShellReader::exec(const ShellCommand& command) {
  if (ended_ != End::kNo) return ShellVerdict::of(true);
  if (++steps_ > kMostSteps)
    throw ShellError{command.at, "the script has too many steps to import"};
  switch (command.kind) {
    case ShellCommand::Kind::kSimple: return exec_simple(command);
    case ShellCommand::Kind::kList: return exec_list(command);
    case ShellCommand::Kind::kAndOr: return exec_and_or(command);
    case ShellCommand::Kind::kPipeline: return exec_pipeline(command);
    case ShellCommand::Kind::kNot: return negated(exec(command.children[0]));
    case ShellCommand::Kind::kIf: return exec_if(command, 0);
    case ShellCommand::Kind::kCase: return exec_case(command, 0);
    case ShellCommand::Kind::kLoop: return exec_loop(command);
    case ShellCommand::Kind::kFunction: define(command); break;
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

ShellVerdict ShellReader::unknown(std::string what, uint32_t at) {
  return {ShellVerdict::Is::kUnknown, expansion_.add_doubt(std::move(what), at), false};
}

void ShellReader::warn(uint32_t at, std::string message) {
  out_.warnings.emplace_back(place_of(at), std::move(message));
}

ShellVerdict ShellReader::forget(const std::set<std::string>& names, std::string what,
                                 uint32_t at) {
  const ShellVerdict verdict = unknown(std::move(what), at);
  for (const std::string& name : names) {
    variables_[name] = scalar_variable(unknown_text(verdict.doubt, at));
    variables_[name].items[0].many = true;
  }
  return verdict;
}

// A subshell's variables, and its end, stay in it.
ShellVerdict ShellReader::aside(const std::function<ShellVerdict()>& run) {
  const ShellVariables before = variables_;
  const ShellVerdict verdict = run();
  variables_ = before;
  ended_ = End::kNo;
  return verdict;
}

ShellVerdict ShellReader::exec_list(const ShellCommand& command) {
  ShellVerdict verdict;
  for (const ShellCommand& child : command.children) verdict = exec(child);
  return verdict;
}

ShellVerdict ShellReader::exec_and_or(const ShellCommand& command) {
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

ShellVerdict ShellReader::exec_pipeline(const ShellCommand& command) {
  ShellVerdict verdict;
  for (const ShellCommand& child : command.children) verdict = aside([&] { return exec(child); });
  return verdict;
}

// Both branches of a test that is not known, and what holds behind either.
void ShellReader::fork(const ShellVerdict& verdict, uint32_t at, const std::function<void()>& yes,
                       const std::function<void()>& no) {
  if (++depth_ > kMostNested) throw ShellError{at, "the script nests too deeply to import"};
  const int32_t test = derived_doubt(doubts_, verdict.doubt);
  doubts_[static_cast<size_t>(test)].at = at;
  doubts_[static_cast<size_t>(test)].choice = true;
  guards_.push_back(test);
  const ShellVariables before = variables_;
  yes();
  const End first = std::exchange(ended_, End::kNo);
  ShellVariables there = std::exchange(variables_, before);
  no();
  const End second = std::exchange(ended_, End::kNo);
  guards_.pop_back();
  --depth_;
  if (first != End::kNo && second != End::kNo) {
    ended_ = std::min(first, second);
  } else if (second != End::kNo) {
    variables_ = std::move(there);
  } else if (first == End::kNo) {
    if (verdict.asks_empty) take_default(doubts_[static_cast<size_t>(verdict.doubt)].name, there);
    variables_ = joined_variables(there, variables_, test, doubts_);
  }
}

// if [ -z "$TP" ]; then TP=4; fi: what the branch sets is the default, as with ${TP:-4}.
void ShellReader::take_default(const std::string& name, ShellVariables& other) {
  if (name.empty() || variables_.contains(name) == other.contains(name)) return;
  const ShellVariable value = variables_.contains(name) ? variables_[name] : other[name];
  if (value.array || value.items.size() != 1) return;
  variables_[name] = other[name] = value;
  expansion_.add_default(name, plain_text(value.items[0].text));
}

ShellVerdict ShellReader::exec_if(const ShellCommand& command, size_t at) {
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

ShellVerdict ShellReader::exec_case(const ShellCommand& command, size_t from) {
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
ShellVerdict ShellReader::exec_loop(const ShellCommand& command) {
  std::set<std::string> names;
  if (!command.name.empty()) names.insert(command.name);
  for (const ShellCommand& child : command.children)
    names_that_may_be_set(child, functions_, names);
  const std::string what = fmt::format("a result of the loop on line {}, which smp does not run",
                                       place_of(command.at).line);
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
    if (ended_ == End::kLoop) ended_ = End::kNo;
  }
  --loops_;
  ended_ = End::kNo;
  variables_ = before;
  if (!of_arguments) {
    mark();
  } else if (!names.empty()) {
    warn(command.at,
         "this loop reads the script's arguments: variables that it sets from them are not read");
  }
  return ShellVerdict::of(true);
}

ShellVerdict ShellReader::exec_arithmetic(const ShellPart& part) {
  std::set<std::string> names;
  names_set_in(plain_text(part.text), names);
  if (!names.empty()) {
    return forget(names, fmt::format("{}, which smp does not evaluate", part.shown), part.at);
  }
  int32_t doubt = -1;
  const auto value = expansion_.arithmetic(part, doubt);
  if (!value) return {ShellVerdict::Is::kUnknown, doubt, false};
  return ShellVerdict::of(*value != 0);
}

// If a function has two definitions in branches of an unknown test, a call could mean either.
void ShellReader::define(const ShellCommand& function) {
  const bool again = functions_.contains(function.name) && !guards_.empty();
  functions_[function.name] = again ? nullptr : &function.children[0];
}

}  // namespace smp::shell
