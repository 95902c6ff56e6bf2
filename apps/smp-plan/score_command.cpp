#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "screen.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/planner/published/score.h"

namespace smp {
namespace {

constexpr const char* kScoreDescription =
    R"(Predicts every run in tables of published runs and prints the errors of the predictions.

Examples:
  smp-plan score runs.csv
  smp-plan score runs/*.csv --json
  smp-plan score runs.csv --framework megatron-core    one framework for all rows
)";

struct ScoreRequest {
  std::vector<std::string> paths;
  std::string framework;
  bool json = false;
};

ExitCode run_score(const ScoreRequest& request) {
  std::optional<FrameworkChoice> framework;
  if (!request.framework.empty()) framework = framework::framework_named(request.framework);
  std::vector<published::FileScore> files;
  for (const std::string& path : request.paths)
    files.push_back(published::score_file(path, framework));
  print(stdout, request.json ? published::score_json(files) : published::score_text(files));
  return ExitCode::kOk;
}

}  // namespace

void add_score_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<ScoreRequest>();
  CLI::App* command = app.add_subcommand("score", "predict every run in tables of published runs");
  command->description(kScoreDescription);
  command->add_option("runs", request->paths, "tables of published runs (CSV)")->required();
  command
      ->add_option("--framework", request->framework,
                   "price all rows as this framework (smp-plan frameworks lists them, or a file), "
                   "not each row as its own")
      ->type_name("NAME|FILE");
  command->add_flag("--json", request->json, "every row and the summary as JSON");
  command->callback([request, &run] { run = [request] { return run_score(*request); }; });
}

}  // namespace smp
