#include "any_files_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "commands.h"
#include "smp/plan/jobfile/job_source.h"

namespace smp {

std::string format_words() {
  std::string out;
  for (int i = 0; i < importers::kForeignFormats; ++i) {
    if (i > 0) out += "|";
    out += name_of(static_cast<importers::ForeignFormat>(i));
  }
  return out;
}

std::optional<importers::ForeignFormat> format_of_option(const std::string& from) {
  const auto format = importers::foreign_format_named(from);
  if (!format && !from.empty()) {
    throw UsageError(fmt::format("--from: expected one of {}, not '{}'", format_words(), from));
  }
  return format;
}

void add_recipe_option(CLI::App& command, std::string& recipe) {
  command
      .add_option("--recipe", recipe,
                  "a recipe of NeMo or Megatron Bridge, which the file's keys override")
      ->type_name("NAME")
      ->check(not_empty);
}

importers::AnyFiles any_files(const AnyFilesOptions& options) {
  importers::AnyFiles files = options.files;
  files.format = format_of_option(options.from);
  for (const std::string& path : options.with) {
    files.sources.push_back(jobfile::load_job_source(path));
  }
  return files;
}

void add_any_files_options(CLI::App& command, AnyFilesOptions& options) {
  command
      .add_option("--with", options.with,
                  "a further file of the same job, as a model's config.json; repeatable")
      ->type_name("FILE")
      ->check(not_empty)
      ->allow_extra_args(false);
  command
      .add_option("--from", options.from,
                  "format of other programs' files; default: recognized by content")
      ->type_name(format_words());
  add_recipe_option(command, options.files.recipe);
  command
      .add_option("--cluster", options.files.cluster,
                  "a known cluster, or a file with a cluster section")
      ->type_name("NAME|FILE")
      ->check(not_empty);
  command.add_option("--hosts", options.files.hosts, "hosts of the cluster")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command
      .add_option("--processes-per-host", options.files.processes_per_host, "ranks on each host")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
}

}  // namespace smp
