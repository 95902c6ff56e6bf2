#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "files.h"
#include "screen.h"
#include "smp/interchange/exporters/export.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/suggest.h"

namespace smp {
namespace {

constexpr const char* kExportDescription =
    R"(Writes a plan as the configuration of another program. A setting that the program does not have is
an error.

Examples:
  smp-plan export plan.yaml --to deepspeed -o ds_config.json
  smp-plan export plan.yaml --to megatron              torchrun pretrain_gpt.py with its flags
  smp-plan export plan.yaml --to torchtitan -o recipe.py
  smp-plan export plan.yaml --to accelerate -o accelerate.yaml
  smp-plan export plan.yaml --to sagemaker-v1          the distribution of the SageMaker SDK v2
  smp-plan export plan.yaml --to sagemaker-v2-sdk3     Torchrun(smp=SMP(...)) of the SDK v3
  smp-plan export plan.yaml --to torchrun
  smp-plan export job.yaml --to megatron               plans the job first
)";

struct ExportRequest {
  std::string path;
  std::string to;
  std::string output;
};

std::vector<std::string> target_words() {
  std::vector<std::string> out;
  for (int i = 0; i < exporters::kExportTargets; ++i) {
    out.emplace_back(name_of(static_cast<exporters::ExportTarget>(i)));
  }
  return out;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

ExitCode run_export(const ExportRequest& request) {
  if (request.path.empty() || request.to.empty()) {
    throw UsageError(
        "export needs a plan or job file and --to, as in smp-plan export plan.yaml --to "
        "deepspeed");
  }
  const auto target = exporters::export_target_named(request.to);
  if (!target) {
    const auto near = text::nearest(request.to, target_words());
    throw UsageError(fmt::format("--to: expected one of {}, not '{}'{}",
                                 joined(target_words(), ", "), request.to,
                                 near ? fmt::format("; did you mean '{}'?", *near) : ""));
  }
  const exporters::Exported out =
      exporters::export_plan(plan_of_file(request.path), *target, request.path);
  if (request.output.empty() || request.output == "-") {
    std::fputs(out.text.c_str(), stdout);
  } else {
    files::write_text_file(request.output, out.text);
  }
  for (const std::string& note : out.notes) {
    print(stderr, fmt::format("note: {}\n", note));
  }
  return ExitCode::kOk;
}

}  // namespace

void add_export_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<ExportRequest>();
  CLI::App* command =
      app.add_subcommand("export", "write a plan as the configuration of another program");
  command->description(kExportDescription);
  command->add_option("plan", request->path, "plan or job file");
  command->add_option("--to", request->to, "program whose configuration is written")
      ->type_name(joined(target_words(), "|"));
  command->add_option("-o,--output", request->output, "write to FILE; - is standard output")
      ->type_name("FILE")
      ->check(not_empty);
  command->callback([request, &run] { run = [request] { return run_export(*request); }; });
}

}  // namespace smp
