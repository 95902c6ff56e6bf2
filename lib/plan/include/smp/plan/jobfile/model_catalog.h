#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The table of published models: the files of configs/models, which are compiled into the program.
// A job file names one by its file, by its Hugging Face repository, or by the recipe of a framework
// (`model: llama3-8b`). Names match without regard to case, owner ("meta-llama/"), separators ("_",
// "-", "." and " ") and the suffixes -Instruct, -Base, -Chat, -hf, -it and -pt. Pure; any thread.
namespace smp::jobfile {

// A file begins with comments: the title and the number of parameters, which is the published one
// or "counted from the sizes". Lines with a word in front follow: "Also:" further names, "Sizes:"
// the source, "Checked:" a file that the sizes were compared with, "Count:" one with the number.
struct NamedModel {
  std::string_view name;  // of the file
  std::string_view text;  // the file, as it lies in configs/models
};

// A model whose layers the planner cannot price.
struct UnpricedModel {
  std::string_view name;
  std::string_view why;  // "its layers of linear attention (gated delta nets) are not priced"
};

// Sorted by name.
std::span<const NamedModel> named_models();
std::span<const UnpricedModel> unpriced_models();

// Null when no model of the table has that name.
const NamedModel* find_model(std::string_view name);
const UnpricedModel* find_unpriced_model(std::string_view name);

// Names of the table that are close to `name`, at most three, best first.
std::vector<std::string> models_like(std::string_view name);
// Of a name that find_model() does not find: "unknown model 'lama3-8b', did you mean 'llama3-8b'?
// ...", or what is not priced.
std::string unknown_model(std::string_view name);

// {"meta-llama/Meta-Llama-3-8B", "llama3_8b"}, as the file has them.
std::vector<std::string> other_names(const NamedModel& model);

}  // namespace smp::jobfile
