// smp-worker: one rank of a training run, started by smp-launch. It has no arguments: everything
// comes from the environment (smp/plan/env/environment.h). `smp-worker --measure CPUS`, started by
// smp-bench, times this host instead.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "mapped_progress_page.h"
#include "rank_signals.h"
#include "smp/comm/call_log.h"
#include "smp/comm/jobs/job_environment.h"
#include "smp/comm/net/network_cost.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/env/environment_reader.h"
#include "smp/plan/files/atomic_file.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/plan/runinfo/step_timeline.h"
#include "smp/plan/spec/plan.h"
#include "smp/plan/system/freed_memory.h"
#include "smp/plan/text/printable.h"
#include "smp/runtime/parallel/built_rank.h"
#include "smp/runtime/record/error_report.h"
#include "smp/runtime/training/measure_steps.h"
#include "smp/runtime/training/product_speeds.h"
#include "smp/runtime/training/trainer.h"

namespace {

using namespace smp;

constexpr const char* kProgram = "smp-worker";

// All that a worker reads of its environment.
struct WorkerEnvironment {
  jobs::JobEnvironment job;
  std::string plan_path;
  std::string run_dir;
  std::string error_file;
  std::string resume;  // "latest", a step, or "" = start anew
  int threads = 0;
  int console_columns = 0;
  int local_rank = 0;
  std::string host;  // as the user named it; "" = there is one
  std::string cuda_module;
  device::GdrUse gdr_use = device::GdrUse::kAuto;
  std::optional<kernels::ProductLibrary> products;
  std::string progress_page;  // "" = nobody looks
  std::optional<training::InjectedFault> fault;
};

// The name of this rank's host among those of the job.
std::string own_host(const std::string& hosts, const std::string& group_rank) {
  if (hosts.find(',') == std::string::npos || group_rank.empty()) return "";
  std::istringstream names(hosts);
  std::string name;
  for (int i = env::number<int>(env::kGroupRank, group_rank); i >= 0; --i) {
    if (!std::getline(names, name, ',')) return "";
  }
  return name;
}

// Ranks of a host share its processors unless OMP_NUM_THREADS says otherwise.
int threads_of(const std::string& omp_num_threads, int local_world_size) {
  constexpr int kMostThreads = 1024;
  if (!omp_num_threads.empty()) {
    const auto threads = env::number<int>("OMP_NUM_THREADS", omp_num_threads);
    if (threads >= 1 && threads <= kMostThreads) return threads;
    throw ConfigError(fmt::format("OMP_NUM_THREADS={}: expected a whole number from 1 to {}",
                                  omp_num_threads, kMostThreads));
  }
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, processors / local_world_size);
}

WorkerEnvironment read_environment() {
  WorkerEnvironment environment;
  environment.job = jobs::read_job_environment(kProgram);
  environment.plan_path = env::required(env::kPlan, kProgram);
  environment.run_dir = env::required(env::kRunDir, kProgram);
  environment.resume = env::optional(env::kResume);
  environment.threads = threads_of(env::optional("OMP_NUM_THREADS"), environment.job.local_size);
  const std::string columns = env::optional(env::kConsoleColumns);
  if (!columns.empty())
    environment.console_columns = env::number<int>(env::kConsoleColumns, columns);
  environment.host = own_host(env::optional(env::kHosts), env::optional(env::kGroupRank));
  environment.cuda_module = env::optional(env::kCudaModule);
  environment.gdr_use = device::read_gdr_use();
  environment.products = training::read_cpu_products();
  environment.local_rank =
      env::number<int>(env::kLocalRank, env::required(env::kLocalRank, kProgram));
  environment.progress_page = env::optional(env::kProgressPage);
  const std::string fault = env::optional(env::kFault);
  if (!fault.empty()) environment.fault = training::parse_fault(fault);
  return environment;
}

// A training step asks for the same blocks as the step before. Faulting their pages in again took
// 3 % of a step on the machine of the benchmarks.
void keep_memory_of_steps() {
  system::keep_freed_memory();
  ::mallopt(M_TOP_PAD, 64 << 20);
}

constexpr size_t kCallsWithoutFile = 32;

// What this rank was at when a call failed, in the run folder; standard error says where.
void write_calls(const comm::CallLog& log, const std::string& run_dir, int rank) {
  const std::string path = fmt::format("{}/calls-{}.txt", run_dir, rank);
  std::ofstream file(path);
  if (file << log.text() << std::flush) {
    std::fprintf(stderr, "smp-worker: the last calls of rank %d are in %s\n", rank, path.c_str());
  } else {
    std::fputs(log.text(kCallsWithoutFile).c_str(), stderr);
  }
}

// For `smp-launch report`, which draws it. A run does not end for want of a picture.
void write_timeline(const runinfo::StepTimeline& timeline, const std::string& run_dir) {
  const std::string folder = run_dir + "/timeline";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  try {
    files::write_file_atomically(fmt::format("{}/rank-{}.json", folder, timeline.rank),
                                 runinfo::timeline_json(timeline));
  } catch (const std::runtime_error& trouble) {
    std::fprintf(stderr, "smp-worker: %s\n", trouble.what());
  }
}

ExitCode work(const WorkerEnvironment& environment, ledger::MemoryWatch& memory,
              RankSignals& signals, std::string& failed_in) {
  failed_in = "reading the plan";
  const Plan plan = planfile::read_plan(environment.plan_path);
  failed_in = "connecting the ranks";
  jobs::JobEnvironment job = environment.job;
  if (!job.exchange.cost) {
    job.exchange.cost = net::network_cost_of(plan.job.cluster);
    job.exchange.cost_of = "the plan's cluster";
  }
  const std::unique_ptr<comm::Communicator> world = jobs::connect(job, [](const std::string& line) {
    std::fprintf(stdout, "%s\n", line.c_str());
    std::fflush(stdout);
  });
  signals.print_calls_of(world->call_log());

  failed_in = "setup";
  const MappedProgressPage page(environment.progress_page);
  std::optional<runinfo::ProgressPost> post;
  if (page.is_mapped()) post.emplace(page.page());
  training::TrainOptions train_options;
  train_options.run_dir = environment.run_dir;
  train_options.progress = stdout;
  train_options.progress_columns = environment.console_columns;
  train_options.threads = environment.threads;
  train_options.ranks_of_host = environment.job.local_size;
  train_options.host = environment.host;
  train_options.owns_process = true;
  train_options.open_gpu = [open = gpu::cuda_module_loader(environment.cuda_module),
                            local_rank = environment.local_rank](gpu::GpuRequest request) {
    request.local_rank = local_rank;  // hosts may have other numbers of ranks than the plan says
    return open(request);
  };
  train_options.gdr_use = environment.gdr_use;
  train_options.products = environment.products;
  train_options.torch_speeds = training::measured_torch_speeds(environment.threads);
  train_options.comm_timeout = environment.job.timeout;
  train_options.memory_watch = &memory;
  runinfo::StepRecorder recorder;
  if (post) {
    post->record(recorder);
    train_options.progress_post = &*post;
    train_options.on_step = [&](const record::StepMetrics&) {
      if (recorder.is_recording())
        write_timeline(recorder.take(environment.job.rank), environment.run_dir);
    };
  }
  train_options.fault = environment.fault;
  train_options.resume = !environment.resume.empty();
  if (train_options.resume && environment.resume != "latest") {
    train_options.resume_step = env::number<int64_t>(env::kResume, environment.resume);
  }
  // Until all ranks are ready the plan of the run's last start stays in its place.
  train_options.on_ready = [&] {
    const std::string laid = environment.run_dir + "/" + runinfo::kPlanToStart;
    if (environment.plan_path == laid)
      std::filesystem::rename(laid, environment.run_dir + "/" + runinfo::kPlanFile);
  };
  train_options.end_requested = [&signals] { return signals.end_requested(); };
  train_options.failed_in = &failed_in;
  try {
    const training::RunResult result = training::train(plan, *world, train_options);
    return result.ended_on_request ? ExitCode::kCheckpointedOnRequest : ExitCode::kOk;
  } catch (const std::exception& error) {  // the peers hear why, before the world closes
    if (dynamic_cast<const comm::CommError*>(&error) != nullptr)
      write_calls(*world->call_log(), environment.run_dir, environment.job.rank);
    world->abort(fmt::format("{}: {}", failed_in, error.what()));
    throw;
  }
}

// smp-launch --build-only: no peers, no run folder.
ExitCode build(record::ErrorReport& report) {
  report.rank = report.culprit = env::number<int>(env::kRank, env::required(env::kRank, kProgram));
  report.phase = "reading the plan";
  const Plan plan = planfile::read_plan(env::required(env::kPlan, kProgram));
  report.phase = "build";
  const std::string text = describe(parallel::build_rank(plan, report.rank), plan);
  const bool printed = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return printed ? ExitCode::kOk : ExitCode::kFailure;
}

// smp-bench host: as ranks compute, in JSON.
ExitCode measure(const std::string& cpus, record::ErrorReport& report) {
  report.phase = "measuring this host";
  ledger::install_counting_allocator();
  const std::string json =
      training::measured_json(training::measure_host(env::number<int64_t>("CPUS", cpus)));
  const bool printed = std::fputs(json.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return printed ? ExitCode::kOk : ExitCode::kFailure;
}

}  // namespace

int main(int argc, char** argv) {
  ledger::MemoryWatch memory;
  keep_memory_of_steps();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit is an error of its write, told by name
  const std::string error_file = env::optional(env::kErrorFile);
  record::ErrorReport report;
  report.phase = "start";
  try {
    if (argc == 3 && std::string(argv[1]) == "--measure")
      return static_cast<int>(measure(argv[2], report));
    RankSignals signals(memory);
    if (!env::optional(env::kBuildOnly).empty()) return static_cast<int>(build(report));
    const WorkerEnvironment environment = read_environment();
    report.rank = report.culprit = environment.job.rank;
    return static_cast<int>(work(environment, memory, signals, report.phase));
  } catch (const std::exception& error) {
    describe(error, report);
  }
  std::fprintf(stderr, "smp-worker: rank %d failed (%s): %s\n", report.rank, report.phase.c_str(),
               text::printable(report.message).c_str());
  record::write_error_report(error_file, report);
  return static_cast<int>(report.exit_code);
}
