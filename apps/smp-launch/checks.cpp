#include "checks.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "smp/launcher/run_folder.h"
#include "smp/plan/data_files.h"
#include "smp/plan/engine_rules.h"
#include "smp/plan/errors.h"
#include "smp/plan/schedule.h"

namespace smp {
namespace {

constexpr double kMiB = 1 << 20;

// A check throws ConfigError with what is wrong, or returns what it has found.
Check run_check(const char* name, const std::function<std::string()>& check) {
  try {
    return {name, true, check()};
  } catch (const ConfigError& error) {
    return {name, false, error.what()};
  }
}

std::string check_hosts(const Plan& plan) {
  if (plan.job.cluster.hosts != 1)
    throw ConfigError(fmt::format(
        "the plan is for {} hosts, and this build starts ranks on this host only: plan again with "
        "cluster.hosts: 1, as in smp-plan JOB --hosts 1",
        plan.job.cluster.hosts));
  return fmt::format("1 host, {} processes", plan.job.cluster.processes_per_host);
}

std::string check_degrees(const Plan& plan) {
  const Degrees degrees = degrees_of(plan.job);
  if (!(degrees == plan.degrees))
    throw ConfigError("the plan's degrees are not those of its parallel section: plan again");
  return fmt::format("pipeline {} x tensor {} x data {} (shard {} x replica {}) = {} ranks",
                     degrees.pipeline, degrees.tensor, degrees.data(), degrees.shard,
                     degrees.replica, degrees.world());
}

std::string check_batch(const Plan& plan) {
  const TrainingSpec& training = plan.job.training;
  if (!training.micro_batch || !training.microbatches || !training.global_batch)
    throw ConfigError("the plan does not say its batch: plan again");
  const int64_t data = plan.degrees.data();
  const int64_t samples = *training.micro_batch * *training.microbatches * data;
  const int64_t tokens = samples * training.sequence_length;
  const std::string equation =
      fmt::format("micro batch {} x microbatches {} x data-parallel {} = {} samples",
                  *training.micro_batch, *training.microbatches, data, samples);
  if (samples != *training.global_batch)
    throw ConfigError(
        fmt::format("{}, but the plan's global batch is {}", equation, *training.global_batch));
  if (tokens > training.max_tokens_per_batch)
    throw ConfigError(fmt::format("{} x sequence {} = {} tokens, above max_tokens_per_batch {}",
                                  equation, training.sequence_length, tokens,
                                  training.max_tokens_per_batch));
  return fmt::format("{} x sequence {} = {} tokens", equation, training.sequence_length, tokens);
}

std::string check_engine(const Plan& plan) {
  const std::vector<std::string> missing = what_engine_cannot_run(plan);
  if (!missing.empty()) throw ConfigError(fmt::format("{}", fmt::join(missing, "\n")));
  check_byte_vocabulary(plan.job.model);
  return "everything the plan asks for can be executed";
}

std::string check_memory(const Plan& plan) {
  const ClusterSpec& cluster = plan.job.cluster;
  const int64_t limit = cluster.memory_per_process_bytes - cluster.reserved_bytes;
  const auto& ranks = plan.predictions.ranks;
  if (ranks.empty()) throw ConfigError("the plan predicts no memory: plan again");
  const auto most = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.peak_bytes < b.peak_bytes;
  });
  const std::string peak =
      fmt::format("at most {:.1f} MiB on a rank (stage {}, tensor {})",
                  static_cast<double>(most->peak_bytes) / kMiB, most->stage, most->tensor);
  if (most->peak_bytes > limit)
    throw ConfigError(fmt::format("{}, more than the {:.1f} MiB that a process may have", peak,
                                  static_cast<double>(limit) / kMiB));
  return fmt::format("{} of {:.1f} MiB", peak, static_cast<double>(limit) / kMiB);
}

std::string check_schedule(const Plan& plan) {
  const ScheduleParameters parameters = schedule_parameters(plan);
  const Schedule schedule = make_schedule(parameters);
  if (const auto broken = verify(schedule, parameters)) throw ConfigError(*broken);
  size_t actions = 0;
  for (const auto& stage : schedule.actions) actions += stage.size();
  return fmt::format(
      "proved: {} actions on {} stages, every send met, no deadlock, live microbatches bounded",
      actions, schedule.stages);
}

std::string check_data(const Plan& plan) {
  const DataFiles files = find_data_files(plan.job.training);
  return fmt::format("{:.1f} MiB of text in {} file{} under {}",
                     static_cast<double>(files.total_bytes) / kMiB, files.files.size(),
                     files.files.size() == 1 ? "" : "s", files.path);
}

bool is_executable(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

std::string check_worker(const std::string& worker) {
  if (!is_executable(worker))
    throw ConfigError(fmt::format(
        "'{}' is not there: smp-launch looks for smp-worker beside itself; build it with "
        "-DSMP_RUNTIME=ON (scripts/build)",
        worker));
  return worker;
}

// As the start will find it: a name without '/' along PATH.
std::string check_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (is_executable(program)) return program;
    throw ConfigError(fmt::format("'{}' is not an executable file", program));
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path;
  while (true) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    const std::string file = std::string(folder.empty() ? "." : folder) + "/" + program;
    if (is_executable(file)) return file;
    if (folder.size() == rest.size()) break;
    rest.remove_prefix(folder.size() + 1);
  }
  throw ConfigError(fmt::format("'{}' was not found in PATH", program));
}

std::string check_run_folder(const std::string& path) {
  if (const std::string why = RunFolder::why_not(path); !why.empty()) throw ConfigError(why);
  return path;
}

}  // namespace

std::vector<Check> checks_of(const PreparedJob& job) {
  std::vector<Check> checks;
  if (job.plan) {
    const Plan& plan = *job.plan;
    checks.push_back(
        run_check("plan", [&] { return job.request.plan + ", unchanged since written"; }));
    checks.push_back(run_check("hosts", [&] { return check_hosts(plan); }));
    checks.push_back(run_check("degrees", [&] { return check_degrees(plan); }));
    checks.push_back(run_check("batch", [&] { return check_batch(plan); }));
    checks.push_back(run_check("engine", [&] { return check_engine(plan); }));
    checks.push_back(run_check("memory", [&] { return check_memory(plan); }));
    checks.push_back(run_check("schedule", [&] { return check_schedule(plan); }));
    checks.push_back(run_check("data", [&] { return check_data(plan); }));
    checks.push_back(run_check("worker", [&] { return check_worker(job.command.front()); }));
  } else {
    checks.push_back(run_check("program", [&] { return check_program(job.command.front()); }));
  }
  if (!job.run_dir.empty())
    checks.push_back(run_check("run folder", [&] { return check_run_folder(job.run_dir); }));
  return checks;
}

}  // namespace smp
