#include "importers/megatron_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "importers/foreign_keys.h"

namespace smp::importers {
namespace {

// Flags that a training has and no tool beside it.
constexpr std::array<std::string_view, 10> kTrainingFlags = {
    "num-layers",       "hidden-size",
    "seq-length",       "num-attention-heads",
    "micro-batch-size", "global-batch-size",
    "train-iters",      "tensor-model-parallel-size",
    "train-samples",    "pipeline-model-parallel-size"};

std::string flag_of(std::string_view word) {
  if (!word.starts_with("--")) return "";
  word.remove_prefix(2);
  return std::string(word.substr(0, word.find('=')));
}

bool trains(const shell::ShellLine& line) {
  return std::ranges::any_of(line.words, [](const shell::ShellWord& word) {
    return std::ranges::count(kTrainingFlags, flag_of(word.text)) > 0;
  });
}

bool has_flags(const shell::ShellLine& line) {
  return std::ranges::any_of(line.words, [](const shell::ShellWord& word) {
    const std::string flag = flag_of(word.text);
    return std::ranges::any_of(megatron_keys(),
                               [&](const ForeignKey& row) { return row.key == flag; });
  });
}

bool document_trains(const std::string& text) {
  return std::ranges::any_of(kTrainingFlags, [&](std::string_view flag) {
    return text.find(fmt::format("--{}", flag)) != std::string::npos;
  });
}

bool same_words(std::span<const shell::ShellWord> a, std::span<const shell::ShellWord> b) {
  const auto what = [](const std::optional<shell::ShellReason>& reason) {
    return reason ? reason->what : std::string();
  };
  return std::ranges::equal(a, b, [&](const shell::ShellWord& x, const shell::ShellWord& y) {
    return x.text == y.text && what(x.unknown) == what(y.unknown) &&
           what(x.only_if) == what(y.only_if);
  });
}

// The words from the Python program on, without torchrun's own before it.
std::span<const shell::ShellWord> own_words(const shell::ShellLine& line) {
  const auto program = std::ranges::find_if(
      line.words, [](const shell::ShellWord& word) { return word.text.ends_with(".py"); });
  const std::span<const shell::ShellWord> words(line.words);
  return program != line.words.end()
             ? words.subspan(static_cast<size_t>(program - line.words.begin()) + 1)
             : words;
}

bool is_program(const shell::ShellWord& word) {
  const std::string name = word.text.substr(word.text.rfind('/') + 1);
  return name == "torchrun" || name == "deepspeed" || name == "accelerate" ||
         name.starts_with("python") || name.ends_with(".py");
}

// srun, mpirun, docker and what else starts a program have flags of their own.
std::vector<shell::ShellWord> from_program(std::vector<shell::ShellWord> words) {
  const auto program = std::ranges::find_if(words, is_program);
  if (program != words.end()) words.erase(words.begin(), program);
  return words;
}

// torchrun pretrain.py $(cat flags.txt)
bool refuse_unknown_flags(const shell::ShellScript& script, text::Diagnostics& diagnostics) {
  for (const shell::ShellLine& line : script.lines) {
    const auto word = std::ranges::find_if(line.words, [](const shell::ShellWord& each) {
      return each.alone && !each.unknown->unset;
    });
    if (word == line.words.end() || std::ranges::none_of(line.words, is_program)) continue;
    diagnostics.error(
        word->place,
        fmt::format("this word may hold flags, but its value is {}: write the flags instead",
                    word->unknown->what));
    return true;
  }
  return false;
}

// A text that no command stands in, but variables with flags, as one that others source.
shell::ShellLine flags_in_variables(const shell::ShellScript& script, Imported& out) {
  shell::ShellLine all;
  std::string names;
  for (const auto& [name, line] : script.variables) {
    if (!has_flags(line)) continue;
    names += (names.empty() ? "$" : ", $") + name;
    all.words.insert(all.words.end(), line.words.begin(), line.words.end());
    all.place = line.place;
  }
  if (!names.empty()) {
    out.warnings.push_back(
        fmt::format("{}: no command in this text has flags, so the flags in {} are read; other "
                    "flags of the run are unknown",
                    out.file, names));
  }
  return all;
}

void refuse_second(const shell::ShellLine& first, const shell::ShellLine& second,
                   text::Diagnostics& diagnostics) {
  const auto& guard = second.only_if ? second.only_if : first.only_if;
  if (guard && guard->choice) {
    diagnostics.error(guard->place,
                      fmt::format("either the command on line {} or the one on line {} trains, "
                                  "depending on {}: set the value above, or keep one branch",
                                  first.place.line, second.place.line, guard->what));
    return;
  }
  diagnostics.error(
      second.place,
      fmt::format("a second training command; the first is on line {}: import a text with only one",
                  first.place.line));
}

// Megatron's programs that train another model than a decoder of text. What stands in their flags
// is the same, and what it means is not.
void refuse_other_program(const std::vector<shell::ShellWord>& words,
                          text::Diagnostics& diagnostics) {
  constexpr std::array<std::string_view, 9> kOthers = {"bert",  "t5",     "ict", "realm", "retro",
                                                       "mamba", "vision", "vlm", "hybrid"};
  constexpr std::string_view kHead = "pretrain_";
  // A pattern says what each layer of a hybrid is.
  const bool has_pattern = std::ranges::any_of(words, [](const shell::ShellWord& word) {
    return word.text.starts_with("--hybrid-layer-pattern") ||
           word.text.starts_with("--hybrid-override-pattern");
  });
  for (const shell::ShellWord& word : words) {
    const std::string name = word.text.substr(word.text.rfind('/') + 1);
    if (!name.starts_with(kHead) || !name.ends_with(".py")) continue;
    const std::string_view model = std::string_view(name).substr(kHead.size());
    const auto other = std::ranges::find_if(kOthers, [&](std::string_view head) {
      return model.starts_with(head) &&
             std::string_view("_.").find(model[head.size()]) != std::string_view::npos;
    });
    if (other == kOthers.end()) continue;
    if (has_pattern && (*other == "mamba" || *other == "hybrid")) continue;
    diagnostics.error(
        word.place,
        fmt::format(
            "{} does not train a text decoder, so its flags describe another model: {}", name,
            *other == "t5"
                ? "import the T5's config.json, and write the other settings into the job file"
                : "only pretrain_gpt.py and similar programs are supported"));
    return;
  }
}

}  // namespace

std::vector<shell::ShellWord> megatron_command(const shell::ShellScript& script, int source,
                                               text::Diagnostics& diagnostics, Imported& out) {
  std::vector<const shell::ShellLine*> found;
  for (const shell::ShellLine& line : script.lines) {
    if (document_trains(line.here_document)) {
      diagnostics.error(
          line.place,
          "the here-document after << contains the training command: import it as a separate file");
      return {};
    }
    if (line.here_document.empty() && trains(line)) found.push_back(&line);
  }
  if (found.empty()) {
    for (const shell::ShellLine& line : script.lines) {
      if (line.here_document.empty() && has_flags(line)) found.push_back(&line);
    }
  }
  shell::ShellLine held;
  if (found.empty() && !script.end) {
    held = flags_in_variables(script, out);
    if (!held.words.empty()) found.push_back(&held);
  }
  if (found.empty() && script.end) {
    diagnostics.error(*script.end, "the script ends here, before a command with Megatron flags");
    return {};
  }
  if (found.empty() && refuse_unknown_flags(script, diagnostics)) return {};
  if (found.empty()) {
    diagnostics.error({source, 1, 1}, "no command in this text has Megatron flags");
    return {};
  }
  const shell::ShellLine& line = *found.front();
  std::vector<shell::ShellWord> words = from_program(line.words);
  refuse_other_program(words, diagnostics);
  for (const shell::ShellLine* other : found) {
    if (same_words(line.words, other->words)) continue;
    if (!same_words(own_words(line), own_words(*other))) {
      refuse_second(line, *other, diagnostics);
      return {};
    }
    // Started in two ways, by ranks that differ.
    words.assign(own_words(line).begin(), own_words(line).end());
    out.warnings.push_back(
        fmt::format("{}:{}:{}: this line starts the training of line {} differently, so the number "
                    "of hosts and processes is not read",
                    out.file, other->place.line, other->place.column, line.place.line));
  }
  if (line.in_loop) {
    diagnostics.error(line.place,
                      "this command is in a loop, which smp does not run: import a text with one "
                      "command of the loop");
    return {};
  }
  const auto warn = [&](text::Place at, std::string_view message) {
    out.warnings.push_back(fmt::format("{}:{}:{}: {}", out.file, at.line, at.column, message));
  };
  for (const auto& [at, message] : script.warnings) warn(at, message);
  if (line.joined && !line.words.front().text.starts_with("--")) {
    warn(line.place,
         "the flags on the lines below are read as flags of this command, although the backslash "
         "before them is missing");
  }
  std::string defaults;
  for (const auto& [name, text] : script.defaults) {
    if (text.find('/') != std::string::npos) continue;  // a path is no part of a plan
    defaults += fmt::format("{}${} = {}", defaults.empty() ? "" : ", ", name, text);
  }
  if (!defaults.empty()) {
    out.notes.push_back("variables that this text does not set have their default values: " +
                        defaults);
  }
  return words;
}

}  // namespace smp::importers
