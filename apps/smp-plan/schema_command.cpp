#include <CLI/CLI.hpp>
#include <cstdio>

#include "commands.h"
#include "smp/plan/jobfile/job_format.h"

namespace smp {
namespace {

constexpr const char* kSchemaDescription =
    R"(Prints the JSON Schema (draft-07) of job files, for editors.

Examples:
  smp-plan schema > job.schema.json
)";

}  // namespace

void add_schema_command(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("schema", "JSON Schema of job files");
  command->description(kSchemaDescription);
  command->callback([&run] {
    run = [] {
      std::fputs(jobfile::job_schema().c_str(), stdout);
      return ExitCode::kOk;
    };
  });
}

}  // namespace smp
