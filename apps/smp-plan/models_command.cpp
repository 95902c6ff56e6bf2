#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "commands.h"
#include "screen.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/jobfile/model_table.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/units.h"

namespace smp {
namespace {

constexpr const char* kModelsDescription =
    R"(Lists the published models that a job file can name (model: NAME): parameters, parameters that are
active for a token, and other names. With a NAME it prints the model's section of a job file.

Examples:
  smp-plan models
  smp-plan models Qwen/Qwen3-30B-A3B
  smp-plan models --json
)";

struct ModelsRequest {
  std::string name;
  bool json = false;
};

const jobfile::NamedModel& named(const std::string& name) {
  const jobfile::NamedModel* model = jobfile::find_model(name);
  if (model == nullptr) throw ConfigError(jobfile::unknown_model(name));
  return *model;
}

text::OrderedJson json_of(const jobfile::NamedModel& model) {
  const model::ParameterCounts counts = model::parameter_counts(jobfile::spec_of(model).model);
  return {{"name", model.name},
          {"parameters", static_cast<int64_t>(counts.total() + 0.5)},
          {"active_parameters", static_cast<int64_t>(counts.active() + 0.5)},
          {"published_parameters", static_cast<int64_t>(jobfile::published_parameters(model))},
          {"also", jobfile::other_names(model)},
          {"source", jobfile::source_of(model)}};
}

std::string line_of(const jobfile::NamedModel& model, size_t width) {
  const ModelSpec spec = jobfile::spec_of(model).model;
  const model::ParameterCounts counts = model::parameter_counts(spec);
  return fmt::format("{:<{}}  {:>8}  {:>8}  {}\n", model.name, width,
                     text::human_count(counts.total()),
                     spec.num_experts > 0 ? text::human_count(counts.active()) : "",
                     fmt::join(jobfile::other_names(model), ", "));
}

std::string table_text() {
  size_t width = 0;
  for (const auto& model : jobfile::named_models()) width = std::max(width, model.name.size());
  std::string text =
      fmt::format("{:<{}}  {:>8}  {:>8}  {}\n", "model", width, "params", "active", "also");
  for (const auto& model : jobfile::named_models()) text += line_of(model, width);
  return text;
}

ExitCode run_models(const ModelsRequest& request) {
  if (request.json) {
    text::OrderedJson out = text::OrderedJson::array();
    if (!request.name.empty()) {
      out = json_of(named(request.name));
    } else {
      for (const auto& model : jobfile::named_models()) out.push_back(json_of(model));
    }
    print(stdout, out.dump(2) + "\n");
    return ExitCode::kOk;
  }
  print(stdout, request.name.empty() ? table_text() : jobfile::model_section(named(request.name)));
  return ExitCode::kOk;
}

}  // namespace

void add_models_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<ModelsRequest>();
  CLI::App* command = app.add_subcommand("models", "published models that a job can name");
  command->description(kModelsDescription);
  command->add_option("name", request->name, "a model: prints its section of a job file")
      ->type_name("NAME")
      ->check(not_empty);
  command->add_flag("--json", request->json, "for programs");
  command->callback([request, &run] { run = [request] { return run_models(*request); }; });
}

}  // namespace smp
