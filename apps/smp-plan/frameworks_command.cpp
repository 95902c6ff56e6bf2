#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "screen.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/framework/framework_format.h"

namespace smp {
namespace {

constexpr const char* kFrameworksDescription =
    R"(Lists the frameworks that a plan can be priced as, or prints the file of one.

Examples:
  smp-plan frameworks
  smp-plan frameworks deepspeed > mine.yaml     a file to edit, for framework: mine.yaml
  smp-plan frameworks megatron-core --json      every key, with those of the file that it extends
)";

struct FrameworksRequest {
  std::string name;
  bool json = false;
};

ExitCode run_frameworks(const FrameworksRequest& request) {
  if (request.name.empty()) {
    print(stdout, request.json ? framework::frameworks_json() : framework::frameworks_text());
  } else if (request.json) {
    print(stdout, framework::framework_json(*framework::framework_named(request.name).habits));
  } else if (const auto* known = framework::find_framework(request.name)) {
    print(stdout, std::string(known->text));
  } else {
    throw ConfigError(framework::unknown_framework(request.name));
  }
  return ExitCode::kOk;
}

}  // namespace

void add_frameworks_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<FrameworksRequest>();
  CLI::App* command = app.add_subcommand("frameworks", "frameworks that plans are priced as");
  command->description(kFrameworksDescription);
  command
      ->add_option("name", request->name,
                   "print this framework's file; with --json, a path of a file counts too")
      ->type_name("NAME");
  command->add_flag("--json", request->json, "as JSON");
  command->callback([request, &run] { run = [request] { return run_frameworks(*request); }; });
}

}  // namespace smp
