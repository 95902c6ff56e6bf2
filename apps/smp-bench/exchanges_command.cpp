#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "collectives_command.h"
#include "network_cost.h"
#include "size_range.h"
#include "smp/comm/jobs/job_environment.h"
#include "smp/comm/net/network_cost.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/mesh/collective.h"
#include "smp/planner/calibration/nccl_tests.h"

namespace smp {
namespace {

constexpr const char* kExchangesExamples =
    R"(Examples:
  smp-bench exchanges --hosts 16
  smp-bench exchanges --hosts 16 --cluster mine.yaml          a file of `smp-bench collectives --calibrate`
  SMP_FABRIC_COST=1.5e-05,1e-06,1e-10,8e-11 smp-bench exchanges --hosts 64 --ranks-per-host 8

Needs no network. A size is that of a rank's full buffer; times are of the network alone. To measure the network cost:
`smp-launch --hosts a,b,c -- smp-bench collectives --network-cost`.
)";

}  // namespace

void add_exchanges_command(CLI::App& app, BenchRun& run) {
  struct Request {
    int64_t hosts = 2, ranks_per_host = 1;
    SizeRange sizes;
    std::string cluster;
  };
  auto request = std::make_shared<Request>();
  CLI::App* command = app.add_subcommand(
      "exchanges",
      "predicted time of each exchange algorithm between hosts, and the algorithm chosen");
  command->footer(kExchangesExamples);
  command->add_option("--hosts", request->hosts, "number of hosts")
      ->type_name("N")
      ->required()
      ->check(CLI::Range(2, mesh::kMaxRanksOfHosts));
  command->add_option("--ranks-per-host", request->ranks_per_host, "ranks per host; default 1")
      ->type_name("N")
      ->check(CLI::Range(1, mesh::kMaxRanks));
  add_size_options(*command, request->sizes);
  command
      ->add_option("--cluster", request->cluster,
                   "cluster whose network cost to use, as a run of a plan for it does; "
                   "SMP_FABRIC_COST takes precedence")
      ->type_name("NAME|FILE");
  command->callback([request, &run] {
    check(request->sizes);
    run = [request] {
      net::ExchangeRule rule = jobs::read_exchange_rule();
      if (!rule.cost && !request->cluster.empty())
        rule.cost = net::network_cost_of(
            calibration::read_cluster(jobfile::cluster_source(request->cluster)));
      fmt::print("{}", exchange_table(request->hosts, request->ranks_per_host,
                                      sizes_in(request->sizes), rule));
      return 0;
    };
  });
}

}  // namespace smp
