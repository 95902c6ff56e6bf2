#include "importers/nemo_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "importers/nemo_recipes.h"
#include "shell/shell_script.h"

namespace smp::importers {
namespace {

bool starts_recipe(const shell::ShellLine& line) {
  bool nemo = false;
  for (size_t i = 0; i < line.words.size(); ++i) {
    const std::string& word = line.words[i].text;
    if (word.starts_with("--recipe") || word.starts_with("--factory")) return true;
    if (word.ends_with("run_recipe.py")) return true;
    nemo = nemo || word == "nemo" || word.ends_with("/nemo");
    if (nemo && word == "llm") return true;
  }
  return false;
}

// Options of Megatron Bridge's run_recipe.py, some of which are no fields.
struct Option {
  std::string_view word;
  std::string_view path;  // empty: no plan depends on it
  bool has_value = true;
};
constexpr std::array<Option, 36> kOptions = {{
    {"-ms", "train.train_iters"},
    {"--max_steps", "train.train_iters"},
    {"-gb", "train.global_batch_size"},
    {"--global_batch_size", "train.global_batch_size"},
    {"-mb", "train.micro_batch_size"},
    {"--micro_batch_size", "train.micro_batch_size"},
    {"-sl", "model.seq_length"},
    {"--seq_length", "model.seq_length"},
    {"-tp", "model.tensor_model_parallel_size"},
    {"--tensor_model_parallel_size", "model.tensor_model_parallel_size"},
    {"-pp", "model.pipeline_model_parallel_size"},
    {"--pipeline_model_parallel_size", "model.pipeline_model_parallel_size"},
    {"-cp", "model.context_parallel_size"},
    {"--context_parallel_size", "model.context_parallel_size"},
    {"-vp", "model.virtual_pipeline_model_parallel_size"},
    {"--virtual_pipeline_model_parallel_size", "model.virtual_pipeline_model_parallel_size"},
    {"-ep", "model.expert_model_parallel_size"},
    {"--expert_model_parallel_size", "model.expert_model_parallel_size"},
    {"-etp", "model.expert_tensor_parallel_size"},
    {"--expert_tensor_parallel_size", "model.expert_tensor_parallel_size"},
    {"--lr", "optimizer.lr"},
    {"--min_lr", "optimizer.min_lr"},
    {"--warmup_iters", "scheduler.lr_warmup_iters"},
    {"--nnodes", "trainer.num_nodes"},
    {"--num_nodes", "trainer.num_nodes"},
    {"--nproc-per-node", "trainer.devices"},
    {"--nproc_per_node", "trainer.devices"},
    {"--mode", ""},
    {"--dataset", ""},
    {"--step-func", ""},
    {"--step_func", ""},
    {"--pretrained_checkpoint", ""},
    {"--save_dir", ""},
    {"--load_dir", ""},
    {"--save_interval", ""},
    {"--yes", "", false},
}};
// torchrun's, which no plan depends on.
constexpr std::array<std::string_view, 8> kStart = {
    "--node-rank",   "--node_rank",   "--master-addr",  "--master_addr",
    "--master-port", "--master_port", "--rdzv-backend", "--rdzv-endpoint"};

class Reading {
 public:
  Reading(const std::vector<shell::ShellWord>& words, text::Diagnostics& diagnostics,
          const ImportContext& context, Imported& out)
      : words_(words), diagnostics_(diagnostics), context_(context), out_(out) {}

  NemoCommand read() {
    for (at_ = 0; at_ < words_.size(); ++at_) {
      if (words_[at_].text == "finetune" && at_ > 0 && words_[at_ - 1].text == "llm") {
        diagnostics_.error(words_[at_].place,
                           "recipes of fine-tuning are not read: import the configuration that the "
                           "run prints or saves");
        return {};
      }
      word();
    }
    factory_arguments();
    if (!model_.empty() && command_.recipe.empty()) {
      command_.recipe = fmt::format("{}_{}_config", model_, mode_ == "pretrain" ? mode_ : "sft");
    }
    return command_;
  }

 private:
  void word() {
    const shell::ShellWord& word = words_[at_];
    const size_t equals = word.text.find('=');
    const std::string name = word.text.substr(0, equals);
    const bool is_option = word.text.starts_with('-') && word.text.size() > 1;
    if (!is_option) {
      if (equals == word.text.npos || name.find('.') == name.npos) return;  // a program, or NAME=x
      add(name.starts_with('+') ? name.substr(name.find_first_not_of('+')) : name, word,
          word.text.substr(equals + 1));
      return;
    }
    const auto option = std::ranges::find(kOptions, name, &Option::word);
    const bool is_recipe = name == "--recipe" || name == "--factory";
    const bool is_model = name == "--model";
    const bool known =
        is_recipe || is_model || option != kOptions.end() || std::ranges::count(kStart, name) > 0;
    if (!known) {
      out_.warnings.push_back(fmt::format("{}:{}:{}: unknown option '{}'", out_.file,
                                          word.place.line, word.place.column, name));
      return;
    }
    const bool takes = option == kOptions.end() || option->has_value;
    if (!takes) return;
    const bool inside = equals != word.text.npos;
    if (!inside && at_ + 1 >= words_.size()) {
      diagnostics_.error(word.place, fmt::format("{} needs a value", name));
      return;
    }
    const shell::ShellWord& holder = inside ? word : words_[++at_];
    const std::string value = inside ? word.text.substr(equals + 1) : holder.text;
    if (is_recipe) {
      command_.recipe = value;
      command_.recipe_place = holder.place;
    } else if (is_model) {
      model_ = value;
      command_.recipe_place = holder.place;
    } else if (name == "--mode") {
      mode_ = value;
    } else if (option != kOptions.end() && !option->path.empty()) {
      add(std::string(option->path), holder, value);
    } else {
      out_.ignored.push_back(name);
    }
  }

  // "llama3_70b(num_nodes=4)" of NeMo's command line.
  void factory_arguments() {
    const size_t open = command_.recipe.find('(');
    if (open == std::string::npos) return;
    std::string_view rest = std::string_view(command_.recipe).substr(open + 1);
    const shell::ShellWord at{.text = command_.recipe, .place = command_.recipe_place};
    if (rest.ends_with(')')) rest.remove_suffix(1);
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(','), rest.size());
      const std::string_view argument = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const size_t blank = std::min(argument.find_first_not_of(' '), argument.size());
      const size_t equals = argument.find('=');
      std::string name(argument.substr(0, equals));
      std::erase(name, ' ');
      if (name == "name" || name == "dir") continue;
      if (equals == argument.npos || (name != "num_nodes" && name != "num_gpus_per_node")) {
        diagnostics_.error(at.place, fmt::format("the argument {} of the recipe is not read: "
                                                 "supported are num_nodes, num_gpus_per_node, name "
                                                 "and dir",
                                                 text::quoted_for_message(argument.substr(blank))));
        continue;
      }
      add(name == "num_nodes" ? "trainer.num_nodes" : "trainer.devices", at,
          std::string(argument.substr(equals + 1)));
    }
    command_.recipe.resize(open);
  }

  void add(const std::string& path, const shell::ShellWord& word, const std::string& value) {
    const bool hosts = path == "trainer.num_nodes", devices = path == "trainer.devices";
    if (word.unknown || word.only_if) {
      if ((hosts && context_.hosts) || (devices && context_.processes_per_host)) return;
      const shell::ShellReason& reason = word.unknown ? *word.unknown : *word.only_if;
      diagnostics_.error(word.place, fmt::format("the value of {} is {}: {}", path, reason.what,
                                                 hosts     ? "give --hosts N"
                                                 : devices ? "give --processes-per-host N"
                                                           : "write the value instead"));
      return;
    }
    text::Diagnostics quiet;
    const std::string text = "x: " + value + "\n";
    const text::YamlTree tree = text::parse_yaml(text, quiet.add_source("", text), quiet);
    NemoOverride given{path, word.place, {}};
    if (tree.complete && tree.root.find("x") != nullptr) given.value = tree.root.find("x")->value;
    place_all(given.value, word.place);
    command_.overrides.push_back(std::move(given));
  }

  static void place_all(text::YamlNode& node, text::Place place) {
    node.place = place;
    for (text::YamlNode& item : node.items) place_all(item, place);
    for (text::YamlEntry& entry : node.entries) {
      entry.place = place;
      place_all(entry.value, place);
    }
  }

  const std::vector<shell::ShellWord>& words_;
  text::Diagnostics& diagnostics_;
  const ImportContext& context_;
  Imported& out_;
  size_t at_ = 0;
  std::string model_;
  std::string mode_ = "pretrain";
  NemoCommand command_;
};

}  // namespace

bool is_nemo_command(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t first = line.find_first_not_of(" \t");
    if (first == line.npos || line[first] == '#') continue;
    for (const std::string_view word :
         {"--recipe ", "--recipe=", "--factory ", "--factory=", "run_recipe.py", "nemo llm "}) {
      if (line.find(word) != line.npos) return true;
    }
  }
  return false;
}

NemoCommand read_nemo_command(std::string_view text, int source, text::Diagnostics& diagnostics,
                              const ImportContext& context, Imported& out) {
  const shell::ShellScript script = shell::read_shell_script(text, source, diagnostics);
  if (diagnostics.any()) return {};
  const shell::ShellLine* found = nullptr;
  for (const shell::ShellLine& line : script.lines) {
    if (!starts_recipe(line)) continue;
    if (found != nullptr) {
      diagnostics.error(line.place,
                        fmt::format("a second command starts a recipe; the first is on line {}: "
                                    "import a text with only one",
                                    found->place.line));
      return {};
    }
    found = &line;
  }
  if (found == nullptr) {
    diagnostics.error({source, 1, 1},
                      "no command in this text starts a recipe with --recipe, "
                      "--factory or --model");
    return {};
  }
  return Reading(found->words, diagnostics, context, out).read();
}

}  // namespace smp::importers
