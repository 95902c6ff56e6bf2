#include "smp/plan/jobfile/model_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

#include "smp/plan/base/check.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/text/units.h"

namespace smp::jobfile {
namespace {

constexpr std::string_view kModelsHead = R"(# Models

A job file names a published model, and the planner takes its sizes from one table:

```yaml
model: llama3-8b
```

- The name is that of the table below, that of the Hugging Face repository (`meta-llama/Meta-Llama-3-8B`) or that of
  the recipe in NeMo or Megatron-Bridge (`llama3_8b`). Case, owner, separators and the suffixes `-Instruct`, `-Base`,
  `-Chat`, `-hf`, `-it` and `-pt` do not matter, nor do the months `-2407` and `-2501`. A name that is not in
  the table is an error that names the nearest ones.
- `smp-plan models` lists the table, `smp-plan models NAME` prints the section `model` of one, to be copied and
  changed, and `smp-plan models --json` is for programs. Keys are changed without a copy by `--set model.num_layers=16`, or in the file by
  `model: {hf_config: llama3-8b, num_layers: 16}`.
- `training.sequence_length` is that of the table's file unless the job gives one.
- `smp-plan score` takes from the same table what a row leaves empty. `smp-plan init --model NAME` sets its keys.
)";

constexpr std::string_view kModelsPriced = R"(
What the planner prices beside plain layers of attention and an MLP:

- **Windows** (`sliding_window`, `chunked_windows`, `full_attention_period`): attention in layers with a window costs
  what the window sees. All layers have the mean time of the model's layers.
- **Hybrids** (`layer_pattern`): layers of Mamba-2, attention, an MLP or experts, by the letters of the pattern. Layers
  without experts have the mean time and bytes of the pattern.
- **Vision towers** (`vision_parameters`): a fixed number of parameters on the first stage. Their activations and time
  are not priced, and the report says so.

Of these the engine runs sliding windows, in all layers or in some; [what runs today](support.md) has the rest.

)";

// What was checked of the files, and what the numbers in their first lines are worth.
std::string models_trust() {
  std::vector<std::string> unchecked;
  size_t counted = 0;
  size_t found = 0;
  for (const NamedModel& model : named_models()) {
    const std::string_view first = model.text.substr(0, model.text.find('\n'));
    if (model.text.find("# Checked: ") == std::string_view::npos) {
      unchecked.push_back(fmt::format("`{}`", model.name));
    }
    if (first.find("counted from the sizes") != std::string_view::npos) ++counted;
    if (model.text.find("# Count: ") != std::string_view::npos) ++found;
  }
  const size_t all = named_models().size();
  return fmt::format(
      R"(- Each model is a file of [`configs/models`](../configs/models) with its source. The sizes were first written from memory.
  {} of the {} files were then compared with the files that their lines `# Checked:` name: layers, width, heads, MLP, experts and
  vocabulary. Keys that those files lack, such as some positions, were not compared.
  Nobody checked {}.
- The first line of a file has the number of parameters. {} files say `counted from the sizes`: the number is that of our own formula.
  `grep -l "counted from" configs/models/*` lists them. {} files have the number as published. {} of these were found again in the file
  that the line `# Count:` names, to the last digit. The other {} are from memory.
- A test compares the number with the planner's count: they differ by less than 0.5 %. For a counted number this proves nothing.
)",
      all - unchecked.size(), all, fmt::join(unchecked, ", "), counted, all - counted, found,
      all - counted - found);
}

// From the beginning of the line that begins with `word` to the next line that has no margin.
std::string_view section_text(std::string_view text, std::string_view word) {
  const size_t begin = text.find(word);
  SMP_CHECK(begin != std::string_view::npos);
  size_t end = text.find('\n', begin);
  while (end != std::string_view::npos && end + 1 < text.size() && text[end + 1] == ' ') {
    end = text.find('\n', end + 1);
  }
  return text.substr(begin, end == std::string_view::npos ? end : end + 1 - begin);
}

}  // namespace

double published_parameters(const NamedModel& model) {
  const size_t end = model.text.find(" parameters");
  SMP_CHECK(end != std::string_view::npos);
  double number = 0;
  double place = 1;
  for (size_t i = end; i > 0; --i) {
    const char c = model.text[i - 1];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      number += place * (c - '0');
      place *= 10;
    } else if (c != ',') {
      break;
    }
  }
  return number;
}

std::string source_of(const NamedModel& model) {
  constexpr std::string_view kSizes = "# Sizes: ";
  const size_t begin = model.text.find(kSizes);
  if (begin == std::string_view::npos) return "";
  return std::string(model.text.substr(begin + kSizes.size(),
                                       model.text.find('\n', begin) - begin - kSizes.size()));
}

std::string model_section(const NamedModel& model) {
  return std::string(section_text(model.text, "model:\n"));
}

JobSpec spec_of(const NamedModel& model) {
  return read_job({{fmt::format("model {}", model.name), std::string(model.text)}}, {});
}

std::string models_markdown() {
  std::string out = fmt::format("{}{}{}", kModelsHead, models_trust(), kModelsPriced);
  out += "## The table\n\n| model | parameters | active | also |\n|---|---|---|---|\n";
  for (const NamedModel& model : named_models()) {
    const double active = model::parameter_counts(spec_of(model).model).active();
    const double all = published_parameters(model);
    const bool sparse = spec_of(model).model.num_experts > 0;
    std::vector<std::string> names;
    for (const std::string& name : other_names(model)) names.push_back(fmt::format("`{}`", name));
    out += fmt::format("| `{}` | {} | {} | {} |\n", model.name, text::human_count(all),
                       sparse ? text::human_count(active) : "", fmt::join(names, ", "));
  }
  out +=
      "\n## Known and not priced\n\nThese names are errors that say what the planner does not "
      "price.\n\n| model | reason |\n|---|---|\n";
  for (const UnpricedModel& model : unpriced_models()) {
    out += fmt::format("| `{}` | {} |\n", model.name, model.why);
  }
  return out;
}

}  // namespace smp::jobfile
