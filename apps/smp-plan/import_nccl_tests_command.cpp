#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/planner/calibration/nccl_tests.h"

namespace smp {
namespace {

constexpr const char* kImportNcclTestsDescription =
    R"(Writes the measurements of nccl-tests to a cluster file. They replace the link rates of the cluster.

Examples:
  smp-plan import nccl-tests reduce-8.txt --cluster p4d.24xlarge -o mine.yaml
  smp-plan import nccl-tests one-host.txt 16-hosts.txt --cluster mine.yaml -o mine.yaml

Each file is the output of one run of all_reduce_perf. Runs on one host become intra_host_points,
runs on several hosts inter_host_points.
)";

struct Request {
  std::vector<std::string> paths;
  std::string cluster;
  std::string output;
};

ExitCode run_import(const Request& request) {
  if (request.paths.empty() || request.cluster.empty()) {
    throw UsageError(
        "import nccl-tests needs a file and --cluster, as in "
        "smp-plan import nccl-tests reduce.txt --cluster p4d.24xlarge");
  }
  std::vector<calibration::NcclTable> tables;
  for (const std::string& path : request.paths) {
    const jobfile::JobSource source = jobfile::load_job_source(path);
    tables.push_back(calibration::parse_nccl_tests(source.path, source.text));
  }
  const std::string text =
      calibration::with_link_points(jobfile::cluster_source(request.cluster), tables);
  if (request.output.empty() || request.output == "-") {
    std::fputs(text.c_str(), stdout);
  } else {
    files::write_text_file(request.output, text, request.cluster);
  }
  return ExitCode::kOk;
}

}  // namespace

void add_import_nccl_tests_command(CLI::App& import_command, Run& run) {
  auto request = std::make_shared<Request>();
  CLI::App* command =
      import_command.add_subcommand("nccl-tests", "write measured all-reduces to a cluster file");
  command->description(kImportNcclTestsDescription);
  command->formatter(import_command.get_formatter());
  command->add_option("file", request->paths, "outputs of all_reduce_perf");
  command->add_option("--cluster", request->cluster, "a known cluster, or a cluster file")
      ->type_name("NAME|FILE");
  command
      ->add_option("-o,--output", request->output,
                   "write the cluster to FILE; - is standard output")
      ->type_name("FILE")
      ->check(not_empty);
  command->final_callback([request, &run] { run = [request] { return run_import(*request); }; });
}

}  // namespace smp
