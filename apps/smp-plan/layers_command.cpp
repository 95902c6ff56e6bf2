#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "files.h"
#include "screen.h"
#include "smp/plan/files/text_file.h"
#include "smp/planner/report/layers_page.h"

namespace smp {
namespace {

constexpr const char* kLayersDescription =
    R"(Prints what each layer does: its program, operation by operation.

Each line has the flops of an operation, the bytes that it moves through memory and sends to other
ranks, and the bytes alive behind it. Ranks execute these lines. Of a plan for another framework
they are what that framework runs, as the planner prices it.

Examples:
  smp-plan layers plan.yaml
  smp-plan layers job.yaml --layer layers.0
  smp-plan layers job.yaml --html layers.html
)";

struct LayersRequest {
  std::string path;
  std::string layer;
  std::string html;
};

ExitCode print_layers(const LayersRequest& request) {
  const Plan plan = plan_of_file(request.path);
  if (request.html.empty()) {
    print(stdout, report::layers_text(plan, request.layer));
    return ExitCode::kOk;
  }
  files::write_text_file(request.html, report::layers_html(plan, request.layer));
  print(stdout, fmt::format("wrote {}\n", request.html));
  return ExitCode::kOk;
}

}  // namespace

void add_layers_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<LayersRequest>();
  CLI::App* command = app.add_subcommand("layers", "what each layer does, operation by operation");
  command->description(kLayersDescription);
  command->add_option("plan", request->path, "plan or job file")->required();
  command->add_option("--layer", request->layer, "this layer alone, by its name");
  command->add_option("--html", request->html, "write a page to this file instead");
  command->callback([request, &run] { run = [request] { return print_layers(*request); }; });
}

}  // namespace smp
