#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "collectives_command.h"
#include "data_speed.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/spec/plan.h"

namespace smp {
namespace {

constexpr const char* kDataExamples =
    R"(Examples:
  smp-bench data plan.yaml
  smp-bench data plan.yaml --rank 3 --repeats 9 --json

Reads the batches of one rank of the plan, ahead on a thread as in training, without computing. Each repeat reads the
same steps: the first pass may read files from disk, repeats read them from memory.
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
  command->add_option("plan", request->plan, "plan file, as smp-plan writes it")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--rank", request->speed.rank,
                   "rank of the plan; default the first rank whose stage reads data")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--repeats", request->speed.repeats,
                   "repeats, whose median is printed; default 5")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command->add_option("--seconds", request->speed.seconds, "duration of a repeat, about; default 1")
      ->type_name("S")
      ->check(CLI::Range(0.001, 3600.0));
  command->add_flag("--json", request->json, "print print all repeats as JSON");
  command->callback([request, &run] {
    run = [request] {
      const DataSpeed speed = measure_data(planfile::read_plan(request->plan), request->speed);
      fmt::print("{}", request->json ? to_json(speed) : to_text(speed));
      return 0;
    };
  });
}

}  // namespace smp
