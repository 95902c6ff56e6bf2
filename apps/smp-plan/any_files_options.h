#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/interchange/importers/job_of_files.h"

namespace CLI {
class App;
}

namespace smp {

// "hf|smp-v1|...": the words of --from.
std::string format_words();

// The format that --from names; nothing if it is not given. Throws UsageError.
std::optional<importers::ForeignFormat> format_of_option(const std::string& from);

// What a command line says of files of any kind, beside the files.
struct AnyFilesOptions {
  std::vector<std::string> with;  // further files of the same job
  std::string from;
  importers::AnyFiles files;  // without sources and format
};

// Reads the files of --with. Throws UsageError and ConfigError.
importers::AnyFiles any_files(const AnyFilesOptions& options);

// --recipe of a command that reads configurations of NeMo and Megatron Bridge.
void add_recipe_option(CLI::App& command, std::string& recipe);

// --with, --from, --recipe, --hosts, --processes-per-host and --cluster of a command that takes
// files of any kind.
void add_any_files_options(CLI::App& command, AnyFilesOptions& options);

}  // namespace smp
