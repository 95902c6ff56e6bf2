// smp-worker: one rank of a training run, started by smp-launch. It has no arguments: everything
// comes from the environment (smp/plan/environment.h).
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "mapped_progress_page.h"
#include "memory_signal.h"
#include "smp/comm/fabric.h"
#include "smp/comm/shared_memory.h"
#include "smp/plan/environment.h"
#include "smp/plan/errors.h"
#include "smp/plan/exit_code.h"
#include "smp/plan/plan.h"
#include "smp/runtime/built_rank.h"
#include "smp/runtime/last_words.h"
#include "smp/runtime/trainer.h"

namespace {

using namespace smp;

// SIGUSR1: save a checkpoint after the step under way, then end.
volatile std::sig_atomic_t end_requested = 0;

// All that a worker reads of its environment.
struct WorkerEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int hosts = 1;
  std::string master_address;  // where the ranks of several hosts meet
  int master_port = 0;
  std::string fabric_provider, fabric_subnet, host_identity;
  std::string plan_path;
  std::string run_dir;
  std::string job_id;
  std::string job_key;
  std::string error_file;
  double comm_timeout_s = 300;
  std::string resume;  // "latest", a step, or "" = start anew
  int threads = 0;
  int console_columns = 0;
  std::string cuda_module;
  std::string progress_page;  // "" = nobody looks
  std::optional<Fault> fault;
};

std::string required(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    throw ConfigError(
        fmt::format("{} is not set; smp-worker is started by smp-launch, not by hand", name));
  }
  return value;
}

std::string optional(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename Number>
Number number(const char* name, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw ConfigError(fmt::format("{}='{}' is not a number", name, text));
  }
  return value;
}

// Ranks of a host share its processors unless OMP_NUM_THREADS says otherwise.
int threads_of(const std::string& omp_num_threads, int local_world_size) {
  if (!omp_num_threads.empty()) return number<int>("OMP_NUM_THREADS", omp_num_threads);
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, processors / local_world_size);
}

WorkerEnvironment read_environment() {
  WorkerEnvironment environment;
  environment.rank = number<int>(env::kRank, required(env::kRank));
  environment.world_size = number<int>(env::kWorldSize, required(env::kWorldSize));
  environment.local_world_size = number<int>(env::kLocalWorldSize, required(env::kLocalWorldSize));
  const std::string hosts = optional(env::kGroupWorldSize);
  if (!hosts.empty()) environment.hosts = number<int>(env::kGroupWorldSize, hosts);
  if (environment.hosts > 1) {
    environment.master_address = required(env::kMasterAddr);
    environment.master_port = number<int>(env::kMasterPort, required(env::kMasterPort));
    environment.fabric_provider = optional(env::kFabricProvider);
    environment.fabric_subnet = optional(env::kFabricSubnet);
    environment.host_identity = optional(env::kHostIdentity);
  }
  environment.plan_path = required(env::kPlan);
  environment.run_dir = required(env::kRunDir);
  environment.job_id = required(env::kJobId);
  environment.job_key = required(env::kJobKey);
  const std::string timeout = optional(env::kCommTimeout);
  if (!timeout.empty()) environment.comm_timeout_s = number<double>(env::kCommTimeout, timeout);
  environment.resume = optional(env::kResume);
  environment.threads = threads_of(optional("OMP_NUM_THREADS"), environment.local_world_size);
  const std::string columns = optional(env::kConsoleColumns);
  if (!columns.empty()) environment.console_columns = number<int>(env::kConsoleColumns, columns);
  environment.cuda_module = optional(env::kCudaModule);
  environment.progress_page = optional(env::kProgressPage);
  const std::string fault = optional(env::kFault);
  if (!fault.empty()) environment.fault = parse_fault(fault);
  return environment;
}

// A training step asks for the same blocks as the step before: keep them, instead of giving pages
// back to the kernel and faulting them in again (3 % of a step on the machine of the benchmarks).
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, 64 << 20);
}

std::unique_ptr<Communicator> connect(const WorkerEnvironment& environment) {
  const std::chrono::milliseconds timeout(static_cast<int64_t>(environment.comm_timeout_s * 1000));
  if (environment.hosts == 1) {
    SharedMemoryOptions options;
    options.rank = environment.rank;
    options.size = environment.world_size;
    options.job_id = environment.job_id;
    options.job_key = environment.job_key;
    options.timeout = timeout;
    return connect_shared_memory(options);
  }
  FabricOptions options;
  options.rank = environment.rank;
  options.size = environment.world_size;
  options.job_id = environment.job_id;
  options.job_key = environment.job_key;
  options.timeout = timeout;
  options.master_address = environment.master_address;
  options.master_port = environment.master_port;
  options.provider = environment.fabric_provider;
  options.subnet = environment.fabric_subnet;
  options.host_identity = environment.host_identity;
  if (environment.rank == 0) {
    options.report = [](const std::string& line) {
      std::fprintf(stdout, "%s\n", line.c_str());
      std::fflush(stdout);
    };
  }
  return connect_fabric(options);
}

ExitCode work(const WorkerEnvironment& environment, MemoryWatch& memory, std::string& failed_in) {
  failed_in = "reading the plan";
  const Plan plan = read_plan(environment.plan_path);
  failed_in = "connecting the ranks";
  const std::unique_ptr<Communicator> world = connect(environment);

  failed_in = "setup";
  const MappedProgressPage page(environment.progress_page);
  std::optional<ProgressPost> post;
  if (page.is_mapped()) post.emplace(page.page());
  TrainOptions train_options;
  train_options.run_dir = environment.run_dir;
  train_options.progress = stdout;
  train_options.progress_columns = environment.console_columns;
  train_options.threads = environment.threads;
  train_options.owns_process = true;
  train_options.open_gpu = gpus_of_module(environment.cuda_module);
  train_options.memory_watch = &memory;
  if (post) train_options.progress_post = &*post;
  train_options.fault = environment.fault;
  train_options.resume = !environment.resume.empty();
  if (train_options.resume && environment.resume != "latest") {
    train_options.resume_step = number<int64_t>(env::kResume, environment.resume);
  }
  train_options.end_requested = [] { return end_requested != 0; };
  train_options.failed_in = &failed_in;
  try {
    const RunResult result = train(plan, *world, train_options);
    return result.ended_on_request ? ExitCode::kCheckpointedOnRequest : ExitCode::kOk;
  } catch (const std::exception& error) {  // the peers hear why, before the world closes
    world->abort(fmt::format("{}: {}", failed_in, error.what()));
    throw;
  }
}

// smp-launch --build-only: no peers, no run folder.
ExitCode build(LastWords& words) {
  words.rank = words.culprit = number<int>(env::kRank, required(env::kRank));
  words.phase = "reading the plan";
  const Plan plan = read_plan(required(env::kPlan));
  words.phase = "build";
  const std::string text = describe(build_rank(plan, words.rank), plan);
  const bool printed = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return printed ? ExitCode::kOk : ExitCode::kFailure;
}

}  // namespace

int main() {
  std::signal(SIGUSR1, [](int) { end_requested = 1; });
  MemoryWatch memory;
  const MemorySignal memory_signal(memory);
  keep_freed_memory();
  const std::string error_file = optional(env::kErrorFile);
  LastWords words;
  words.phase = "start";
  try {
    if (!optional(env::kBuildOnly).empty()) return static_cast<int>(build(words));
    const WorkerEnvironment environment = read_environment();
    words.rank = words.culprit = environment.rank;
    return static_cast<int>(work(environment, memory, words.phase));
  } catch (const std::exception& error) {
    describe(error, words);
  }
  std::fprintf(stderr, "smp-worker: rank %d failed (%s): %s\n", words.rank, words.phase.c_str(),
               words.message.c_str());
  write_last_words(error_file, words);
  return static_cast<int>(words.exit_code);
}
