#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "any_files_options.h"
#include "commands.h"
#include "screen.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/jobfile/job_reader.h"

namespace smp {
namespace {

constexpr const char* kImportDescription =
    R"(Writes a job file from files of other programs. The format of each file is recognized by its content.

Examples:
  smp-plan import config.json -o job.yaml              a Hugging Face model
  smp-plan import config.json ds_config.json           a model and its DeepSpeed configuration
  smp-plan import train.py                             a script with a SageMaker estimator
  smp-plan import distribution.json --from smp-v1      a SageMaker model parallel dictionary
  smp-plan import pretrain.sh --hosts 4 --processes-per-host 8     a Megatron command line
  smp-plan import accelerate.yaml
  smp-plan import overrides.yaml --recipe llama3_70b_pretrain_config     Megatron Bridge
  smp-plan import nccl-tests reduce.txt --cluster p4d.24xlarge     measured links of a cluster

docs/interchange.md lists every key and its translation.
)";

struct ImportRequest {
  std::vector<std::string> paths;
  std::string from;
  std::string recipe;
  std::string output;
  int64_t hosts = 0;
  int64_t processes_per_host = 0;
};

ExitCode run_import(const ImportRequest& request) {
  if (request.paths.empty()) {
    throw UsageError("import needs a file, as in smp-plan import config.json");
  }
  const auto forced = format_of_option(request.from);
  std::vector<jobfile::JobSource> sources;
  for (const std::string& path : request.paths) sources.push_back(jobfile::load_job_source(path));
  importers::ImportContext context;
  context.recipe = request.recipe;
  if (request.hosts > 0) context.hosts = request.hosts;
  if (request.processes_per_host > 0) context.processes_per_host = request.processes_per_host;
  const std::vector<importers::Imported> files =
      importers::import_sources(sources, forced, context);
  const std::string text = importers::imported_job_yaml(files);
  for (const importers::Imported& file : files) {
    for (const std::string& warning : file.warnings) {
      print(stderr, fmt::format("warning: {}\n", warning));
    }
  }
  if (request.output.empty() || request.output == "-") {
    std::fputs(text.c_str(), stdout);
  } else {
    files::write_text_file(request.output, text);
  }
  return ExitCode::kOk;
}

}  // namespace

void add_import_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<ImportRequest>();
  CLI::App* command =
      app.add_subcommand("import", "write a job file from the configuration of another program");
  command->description(kImportDescription);
  command->add_option("file", request->paths, "files that describe one job together");
  command
      ->add_option("--from", request->from, "format of the files; default: recognized by content")
      ->type_name(format_words());
  add_recipe_option(*command, request->recipe);
  command->add_option("-o,--output", request->output, "write the job to FILE; - is standard output")
      ->type_name("FILE")
      ->check(not_empty);
  command->add_option("--hosts", request->hosts, "hosts of the cluster")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--processes-per-host", request->processes_per_host, "ranks on each host")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  add_import_nccl_tests_command(*command, run);
  command->callback([request, command, &run] {
    if (command->get_subcommands().empty()) run = [request] { return run_import(*request); };
  });
}

}  // namespace smp
