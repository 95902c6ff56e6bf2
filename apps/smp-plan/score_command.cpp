#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "screen.h"
#include "smp/plan/spec/job_names.h"
#include "smp/planner/published/score.h"

namespace smp {
namespace {

constexpr const char* kScoreDescription =
    R"(Predicts every run in tables of published runs and prints the errors of the predictions.

Examples:
  smp-plan score runs.csv
  smp-plan score runs/*.csv --json
  smp-plan score runs.csv --profile megatron    one framework model for all rows
)";

struct ScoreRequest {
  std::vector<std::string> paths;
  std::string profile;
  bool json = false;
};

std::optional<Profile> profile_named(const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::string all;
  for (Profile profile : {Profile::kSmp, Profile::kMegatron, Profile::kDeepSpeed,
                          Profile::kInternEvo, Profile::kFsdp, Profile::kSmpV1, Profile::kSmpV2}) {
    if (name_of(profile) == name) return profile;
    all += all.empty() ? "" : ", ";
    all += name_of(profile);
  }
  throw UsageError("--profile: expected one of " + all + ", not '" + name + "'");
}

ExitCode run_score(const ScoreRequest& request) {
  const std::optional<Profile> profile = profile_named(request.profile);
  std::vector<published::FileScore> files;
  for (const std::string& path : request.paths)
    files.push_back(published::score_file(path, profile));
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
      ->add_option("--profile", request->profile,
                   "price all rows with this framework's model, not with that of each row")
      ->type_name("NAME");
  command->add_flag("--json", request->json, "every row and the summary as JSON");
  command->callback([request, &run] { run = [request] { return run_score(*request); }; });
}

}  // namespace smp
