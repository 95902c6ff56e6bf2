#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "screen.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/jobfile/model_catalog.h"

namespace smp {
namespace {

constexpr const char* kInitDescription =
    R"(Writes a commented job file with every key. The keys of the model and the cluster are set.

Examples:
  smp-plan init -o job.yaml                                 a small model on this host
  smp-plan init --model llama3-8b --cluster p5.48xlarge -o job.yaml
  smp-plan init --model llama/config.json -o job.yaml       a Hugging Face model
  smp-plan init --model configs/models/gpt2-1.5b.yaml
)";

using Settings = std::vector<std::pair<std::string, std::string>>;

struct InitRequest {
  std::string model = "gpt2-124m";
  std::string cluster = "cpu-4";
  std::string output;
};

Settings known_model(const std::string& name) {
  const jobfile::NamedModel* model = jobfile::find_model(name);
  if (model != nullptr) return jobfile::settings_of({name, std::string(model->text)});
  throw ConfigError(jobfile::unknown_model(name) +
                    "; give a config.json or a model file by its path");
}

// config.json is named relative to where the job file will lie.
Settings model_settings(const InitRequest& request) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(request.model, none)) return known_model(request.model);
  const jobfile::JobSource source = jobfile::load_job_source(request.model);
  if (!request.model.ends_with(".json")) {
    Settings settings = jobfile::settings_of(source);
    const bool has_model = std::ranges::any_of(
        settings, [](const auto& setting) { return setting.first.starts_with("model."); });
    if (!has_model) throw ConfigError(request.model + ": this file has no section 'model'");
    return settings;
  }
  importers::import_source(
      source, importers::ForeignFormat::kHuggingFace);  // refuses now what would be refused later
  const bool to_file = !request.output.empty() && request.output != "-";
  const auto folder = std::filesystem::absolute(to_file ? request.output : "x").parent_path();
  const auto path = std::filesystem::absolute(request.model).lexically_relative(folder);
  return {{"model.hf_config", fmt::format("\"{}\"", path.string())}};
}

ExitCode run_init(const InitRequest& request) {
  if (jobfile::find_cluster(request.cluster) == nullptr) {
    throw ConfigError(jobfile::unknown_cluster(request.cluster));
  }
  const std::string text = jobfile::job_template(model_settings(request), request.cluster);
  const std::string path =
      request.output.empty() || request.output == "-" ? "job.yaml" : request.output;
  jobfile::read_job(
      importers::with_hf_model({path, text}));  // what is written is a job file that can be read
  if (request.output.empty() || request.output == "-") {
    std::fputs(text.c_str(), stdout);
    return ExitCode::kOk;
  }
  std::error_code none;
  if (std::filesystem::exists(request.output, none)) {
    throw ConfigError(request.output +
                      ": the file exists: remove it, or give another file with -o");
  }
  files::write_text_file(request.output, text);
  print(stdout, fmt::format("written to {0}; plan it with smp-plan {0}\n", request.output));
  return ExitCode::kOk;
}

}  // namespace

void add_init_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<InitRequest>();
  CLI::App* command = app.add_subcommand("init", "a commented job file to start from");
  command->description(kInitDescription);
  command->add_option("--model", request->model, "a known model, a config.json or a model file")
      ->type_name("NAME|FILE");
  command->add_option("--cluster", request->cluster, "a known cluster")->type_name("NAME");
  command->add_option("-o,--output", request->output, "write to FILE; - is standard output")
      ->type_name("FILE")
      ->check(not_empty);
  command->callback([request, &run] { run = [request] { return run_init(*request); }; });
}

}  // namespace smp
