#include "completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

namespace smp {
namespace {

struct Word {
  std::string name;
  std::string text;
  std::vector<std::string> values;  // that follow it, where they are a fixed list
  bool takes_value = false;
};

std::vector<Word> words_of(const CLI::App& app) {
  std::vector<Word> out;
  for (const CLI::Option* option : app.get_options()) {
    std::vector<std::string> values;
    const std::string type = option->get_type_name();
    // A list of words is written a|b|c; of names in capitals, only the shell knows the values.
    const bool is_list = type.find('|') != std::string::npos &&
                         std::none_of(type.begin(), type.end(),
                                      [](unsigned char c) { return std::isupper(c) != 0; });
    for (size_t at = 0; is_list && at <= type.size();) {
      const size_t end = std::min(type.find('|', at), type.size());
      values.push_back(type.substr(at, end - at));
      at = end + 1;
    }
    const bool takes_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames()) {
      out.push_back({"--" + name, option->get_description(), values, takes_value});
    }
    for (const std::string& name : option->get_snames()) {
      out.push_back({"-" + name, option->get_description(), values, takes_value});
    }
  }
  return out;
}

std::string names_of(const std::vector<Word>& words) {
  std::string out;
  for (const Word& word : words) out += (out.empty() ? "" : " ") + word.name;
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// Text between single quotes of a shell.
std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) {
    text.replace(at, 1, "'\\''");
  }
  return "'" + text + "'";
}

std::string bash_case(const std::string& command, const std::vector<Word>& words) {
  std::string values;
  for (const Word& word : words) {
    if (word.values.empty()) continue;
    values +=
        fmt::format("        {}) COMPREPLY=($(compgen -W \"{}\" -- \"$current\")); return;;\n",
                    word.name, joined(word.values));
  }
  std::string out = fmt::format("    {})\n", command);
  if (!values.empty()) out += "      case $before in\n" + values + "      esac\n";
  return out + fmt::format("      options=\"{}\";;\n", names_of(words));
}

// "_smp_plan": a function's name.
std::string function_of(std::string program) {
  std::replace(program.begin(), program.end(), '-', '_');
  return "_" + program;
}

std::string bash(const CLI::App& app, const std::string& program) {
  std::string commands, cases;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands += (commands.empty() ? "" : " ") + command->get_name();
    cases += bash_case(command->get_name(), words_of(*command));
  }
  cases += bash_case("*", words_of(app));
  return fmt::format(R"(# bash completion of {2}
{3}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before= command= options= word
  local commands="{0}"
  COMPREPLY=()
  (( COMP_CWORD > 0 )) && before=${{COMP_WORDS[COMP_CWORD-1]}}
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " $commands " in *" $word "*) command=$word; break;; esac
  done
  case $command in
{1}  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    [[ -z $command ]] && COMPREPLY=($(compgen -W "$commands" -- "$current"))
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F {3} {2}
)",
                     commands, cases, program, function_of(program));
}

std::string zsh_arguments(const std::vector<Word>& words) {
  std::string out;
  for (const Word& word : words) {
    std::string text;
    for (const char c : word.text) {
      if (c == '[' || c == ']' || c == ':' || c == '\\') text += '\\';
      text += c;
    }
    std::string spec = fmt::format("{}[{}]", word.name, text);
    if (!word.values.empty()) {
      spec += fmt::format(":value:({})", joined(word.values));
    } else if (word.takes_value) {
      spec += ":value:_files";
    }
    out += fmt::format("      {} \\\n", quoted(spec));
  }
  return out;
}

std::string zsh(const CLI::App& app, const std::string& program) {
  std::string commands, cases;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands += fmt::format(" {}", command->get_name());
    cases += fmt::format("    {})\n      _arguments \\\n{}      '*:file:_files';;\n",
                         command->get_name(), zsh_arguments(words_of(*command)));
  }
  return fmt::format(R"(#compdef {3}
{4}() {{
  local -a commands=({0} )
  local command=
  local word
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    if (( ${{commands[(Ie)$word]}} )); then command=$word; break; fi
  done
  case $command in
{1}    *)
      (( CURRENT == 2 )) && compadd -a commands
      _arguments \
{2}      '*:file:_files';;
  esac
}}
{4} "$@"
)",
                     commands, cases, zsh_arguments(words_of(app)), program, function_of(program));
}

std::string fish_lines(const std::string& program, const std::string& condition,
                       const std::vector<Word>& words) {
  std::string out;
  for (const Word& word : words) {
    const bool is_long = word.name.starts_with("--");
    out += fmt::format("complete -c {} -n {} {} {} -d {}", program, quoted(condition),
                       is_long ? "-l" : "-s", word.name.substr(is_long ? 2 : 1), quoted(word.text));
    if (word.takes_value) out += " -r";
    if (!word.values.empty()) out += fmt::format(" -f -a {}", quoted(joined(word.values)));
    out += "\n";
  }
  return out;
}

std::string fish(const CLI::App& app, const std::string& program) {
  std::string out = fmt::format("# fish completion of {}\n", program);
  if (app.get_subcommands(nullptr).empty()) return out + fish_lines(program, "true", words_of(app));
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    out += fmt::format(
        "complete -c {} -n __fish_use_subcommand -a {} -d {}\n", program, command->get_name(),
        quoted(command->get_description().substr(0, command->get_description().find('\n'))));
    out += fish_lines(program, fmt::format("__fish_seen_subcommand_from {}", command->get_name()),
                      words_of(*command));
  }
  return out + fish_lines(program, "__fish_use_subcommand", words_of(app));
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& program,
                              const std::string& shell) {
  if (shell == "bash") return bash(app, program);
  if (shell == "zsh") return zsh(app, program);
  if (shell == "fish") return fish(app, program);
  throw UnknownShell(shell.empty()
                         ? "completion needs a shell: bash, zsh or fish"
                         : fmt::format("completion is for bash, zsh or fish, not '{}'", shell));
}

}  // namespace smp
