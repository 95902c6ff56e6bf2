#include "shell/shell_reader.h"

#include <algorithm>
#include <utility>

// The commands that a script ends with, and the environment that sbatch gives it.
namespace smp::shell {

ShellReader::ShellReader(std::string_view text, int source) : text_(text), source_(source) {
  starts_.push_back(0);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') starts_.push_back(static_cast<uint32_t>(i) + 1);
  }
}

ShellScript ShellReader::read() {
  set_ifs();
  set_slurm();
  run(shell_text(text_));
  for (const ShellDefault& each : expansion_.defaults()) {
    const std::pair<std::string, std::string> taken(each.name, each.text);
    if (std::ranges::count(out_.defaults, taken) == 0) out_.defaults.push_back(taken);
  }
  guards_.clear();
  loops_ = 0;
  set_ifs();
  for (const auto& [name, variable] : variables_) {
    ShellPart part{.kind = ShellPart::Kind::kVariable, .name = name, .index = "@"};
    const std::vector<ShellField> fields = expansion_.fields({{.parts = {std::move(part)}}});
    if (!has_options(fields)) continue;
    count_words(fields.size(), fields[0].at);
    out_.variables.emplace_back(name, line_of(fields, fields[0].at));
  }
  return std::move(out_);
}

text::Place ShellReader::place_of(uint32_t at) const {
  const auto next = std::ranges::upper_bound(starts_, at);
  const auto line = static_cast<int>(next - starts_.begin());
  return {source_, line, static_cast<int>(at - *(next - 1)) + 1};
}

// The variables that every shell starts with, whatever the environment.
void ShellReader::set_ifs() { variables_["IFS"] = scalar_variable(shell_text(" \t\n")); }

// The variables that sbatch sets for #SBATCH lines.
void ShellReader::set_slurm() {
  for (const uint32_t start : starts_) {
    std::string_view line = text_.substr(start, text_.substr(start).find('\n'));
    if (!line.starts_with("#SBATCH")) continue;
    line.remove_prefix(7);
    for (const auto& [option, names] :
         {std::pair{"--nodes", std::vector{"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
          std::pair{"-N", std::vector{"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
          std::pair{"--ntasks-per-node", std::vector{"SLURM_NTASKS_PER_NODE"}},
          std::pair{"--gpus-per-node", std::vector{"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}}}) {
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

void ShellReader::here_documents(const ShellCommand& command,
                                 const std::vector<ShellField>& fields) {
  for (const ShellText& text : command.here_documents) emit(command, fields, plain_text(text));
}

void ShellReader::emit(const ShellCommand& command, const std::vector<ShellField>& fields,
                       std::string document) {
  const bool doubtful = std::ranges::any_of(fields, is_alone);
  if (!has_options(fields) && !doubtful && document.empty()) return;
  ShellLine line = line_of(fields, command.at);
  line.joined = command.joined;
  line.here_document = std::move(document);
  out_.lines.push_back(std::move(line));
}

ShellLine ShellReader::line_of(const std::vector<ShellField>& fields, uint32_t at) const {
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

ShellReason ShellReader::reason_of(int32_t doubt) const {
  const ShellDoubt& of = doubts_[static_cast<size_t>(doubt)];
  return {of.what, place_of(of.at), of.choice, of.unset};
}

bool ShellReader::has_options(const std::vector<ShellField>& fields) {
  return std::ranges::any_of(
      fields, [](const ShellField& field) { return plain_text(field.text).starts_with("--"); });
}

ShellScript read_shell_script(std::string_view text, int source, text::Diagnostics& diagnostics) {
  ShellReader reader(text, source);
  try {
    return reader.read();
  } catch (const ShellError& error) {
    diagnostics.error(reader.place_of(error.at), error.message);
    return {};
  }
}

}  // namespace smp::shell
