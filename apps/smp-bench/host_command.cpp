#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

#include "collectives_command.h"
#include "forked_ranks.h"
#include "measure.h"
#include "smp/comm/jobs/job_environment.h"
#include "smp/plan/system/program_output.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/printable.h"

namespace smp {
namespace {

constexpr const char* kHostExamples = R"(
Examples:
  smp-bench host            what smp-plan asks for a cluster named local, in about 2 s

Prints JSON, an object a line: collectives among 2, 4 and 8 ranks, up to twice the CPUs, and the
engine's steps and kernels as smp-worker measures them on as many ranks as CPUs.
)";

constexpr int kGroups[] = {2, 4, 8};
constexpr mesh::CollectiveOp kOps[] = {
    mesh::CollectiveOp::kAllReduce, mesh::CollectiveOp::kAllGather,
    mesh::CollectiveOp::kReduceScatter, mesh::CollectiveOp::kSend};
constexpr int64_t kSizes[] = {16 << 10, 256 << 10, 4 << 20};
constexpr int kRounds = 2;
constexpr std::chrono::seconds kWorkerTime{60};

int64_t cpus_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Others of the host disturb: of the rounds the quicker one.
void print_collectives(const jobs::JobEnvironment& job) {
  const auto comm = jobs::connect(job, [](const std::string&) {});
  settle(*comm);
  BenchOptions options;
  options.is_out_of_place_alone = true;
  options.is_checked = false;
  options.is_dirty = true;
  options.samples = 3;
  options.sample_s = 0.0015;
  BenchBuffers buffers(*comm, options.is_symmetric);
  text::OrderedJson times = text::OrderedJson::array();
  for (const mesh::CollectiveOp op : kOps) {
    for (const int64_t bytes : kSizes) {
      double least = 0;
      for (int round = 0; round < kRounds; ++round) {
        BenchCase one;
        one.op = op;
        one.bytes = bytes;
        const BenchResult result = measure(*comm, one, options, buffers);
        const double seconds = result.out_of_place.value_or(BenchTime{}).seconds;
        if (round == 0 || seconds < least) least = seconds;
      }
      times.push_back({{"op", mesh::name_of(op)}, {"bytes", bytes}, {"seconds", least}});
    }
  }
  if (comm->rank() != 0) return;
  const text::OrderedJson json = {{"ranks", comm->size()}, {"collectives", std::move(times)}};
  fmt::print("{}\n", json.dump());
}

int run_collectives_among(int ranks) {
  return run_forked_ranks(ranks, [](const jobs::JobEnvironment& job) {
    try {
      print_collectives(job);
      return std::fflush(stdout) == 0 ? 0 : 1;
    } catch (const std::exception& error) {
      fmt::print(stderr, "smp-bench: rank {}: {}\n", job.rank, text::printable(error.what()));
      return 1;
    }
  });
}

int run_host() {
  const int64_t cpus = cpus_of_process();
  const std::string worker = system::program_beside("smp-worker");
  if (worker.empty())
    throw std::runtime_error("no smp-worker beside smp-bench: this build has no training engine");
  for (const int ranks : kGroups) {
    if (ranks > 2 * cpus) break;
    if (const int code = run_collectives_among(ranks); code != 0) return code;
  }
  const system::ProgramOutput steps =
      system::output_of({worker, "--measure", fmt::format("{}", cpus)}, kWorkerTime);
  fmt::print(stderr, "{}", steps.err);
  fmt::print("{}", steps.out);
  return steps.code;
}

}  // namespace

void add_host_command(CLI::App& app, BenchRun& run) {
  CLI::App* command =
      app.add_subcommand("host", "time this host's CPUs as smp trains on them, for smp-plan");
  command->footer(kHostExamples);
  command->callback([&run] { run = run_host; });
}

}  // namespace smp
