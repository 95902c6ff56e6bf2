#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "collectives_command.h"
#include "data_speed.h"
#include "smp/plan/plan.h"
#include "smp/plan/plan_file.h"

namespace smp {
namespace {

constexpr const char* kDataExamples =
    R"(Examples:
  smp-bench data plan.yaml
  smp-bench data plan.yaml --rank 3 --repeats 9 --json

Reads the batches of a rank of the plan, ahead on a thread as in training, and computes nothing. The same steps are
read again for each repeat: the first time files may come from the disk, then from memory.
)";

}  // namespace

void add_data_command(CLI::App& app, BenchRun& run) {
  struct Request {
    std::string plan;
    DataSpeedRequest speed;
    bool json = false;
  };
  auto request = std::make_shared<Request>();
  CLI::App* command =
      app.add_subcommand("data", "tokens per second of a rank's batches, without a model");
  command->footer(kDataExamples);
  command->add_option("plan", request->plan, "a plan of smp-plan")->type_name("FILE")->required();
  command
      ->add_option("--rank", request->speed.rank,
                   "of the plan; default the first one whose stage reads")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--repeats", request->speed.repeats, "of which the median counts (5)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command->add_option("--seconds", request->speed.seconds, "about how long a repeat takes (1)")
      ->type_name("S")
      ->check(CLI::Range(0.001, 3600.0));
  command->add_flag("--json", request->json, "all repeats as JSON");
  command->callback([request, &run] {
    run = [request] {
      const DataSpeed speed = measure_data(read_plan(request->plan), request->speed);
      fmt::print("{}", request->json ? to_json(speed) : to_text(speed));
      return 0;
    };
  });
}

}  // namespace smp
