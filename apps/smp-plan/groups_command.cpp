#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "files.h"
#include "screen.h"
#include "smp/planner/report/groups.h"

namespace smp {
namespace {

constexpr const char* kGroupsDescription =
    R"(Prints the coordinates and groups of a rank by SMP's names, and the sizes as SMP and as smp count
them.

Examples:
  smp-plan groups plan.yaml --rank 3
)";

struct GroupsRequest {
  std::string path;
  int64_t rank = 0;
};

}  // namespace

void add_groups_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<GroupsRequest>();
  CLI::App* command = app.add_subcommand("groups", "the groups of a rank by SMP's names");
  command->description(kGroupsDescription);
  command->add_option("plan", request->path, "plan or job file")->required();
  command->add_option("--rank", request->rank, "the rank")->type_name("R")->required();
  command->callback([request, &run] {
    run = [request] {
      print(stdout, report::describe_groups(plan_of_file(request->path), request->rank));
      return ExitCode::kOk;
    };
  });
}

}  // namespace smp
