#include "smp/launcher/environment/rank_environment.h"

#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>

#include "smp/launcher/environment/variables.h"
#include "smp/plan/env/environment.h"

namespace smp::environment {
namespace {

constexpr size_t kMostHostNames = 100 << 10;
constexpr const char* kOmpThreads = "OMP_NUM_THREADS";
constexpr const char* kOfSageMaker[] = {"SM_HOSTS", "SM_CURRENT_HOST", "SM_NUM_GPUS"};
// Meaningful only when this launcher sets them.
constexpr const char* kOurs[] = {
    env::kPlan,           env::kRunDir,       env::kResume,         env::kJobId,
    env::kJobKey,         env::kErrorFile,    env::kConsoleColumns, env::kBuildOnly,
    env::kTorchErrorFile, env::kProgressPage, env::kPipelineRank,   env::kTensorRank,
    env::kContextRank,    env::kShardRank,    env::kReplicaRank,    env::kHosts};

constexpr const char* kOfEveryRank[] = {
    env::kRank,      env::kLocalRank,      env::kWorldSize,  env::kLocalWorldSize,
    env::kGroupRank, env::kGroupWorldSize, env::kNodeRank,   env::kRoleName,
    env::kRoleRank,  env::kRoleWorldSize,  env::kMasterAddr, env::kMasterPort,
    env::kRunId,     env::kRestartCount,   env::kMaxRestarts};

std::system_error no_port() {
  return std::system_error(errno, std::generic_category(), "cannot reserve a port for MASTER_PORT");
}

}  // namespace

ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (!socket_) throw no_port();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  if (bind(socket_.number(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw no_port();
  number_ = ntohs(address.sin_port);
}

void ReservedPort::lend(bool lent) const {
  const int on = lent ? 1 : 0;
  setsockopt(socket_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

int available_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));  // more than 1024 CPUs
}

std::vector<RankPlace> places_on(const std::vector<int>& slots_of_hosts) {
  std::vector<RankPlace> places;
  for (size_t host = 0; host < slots_of_hosts.size(); ++host) {
    for (int local = 0; local < slots_of_hosts[host]; ++local)
      places.push_back({static_cast<int>(host), local, slots_of_hosts[host], 1, {}});
  }
  return places;
}

std::vector<std::string> variables_of_rank(const JobVariables& job, const RankPlace& place,
                                           int rank, const std::string& error_file,
                                           const std::vector<std::string>& inherited) {
  std::vector<std::string> set;
  const auto add = [&](const char* name, const auto& value) {
    set.push_back(fmt::format("{}={}", name, value));
  };
  add(env::kRank, rank);
  add(env::kLocalRank, place.local_rank);
  add(env::kWorldSize, job.world_size);
  add(env::kLocalWorldSize, place.local_world_size);
  add(env::kGroupRank, place.host);
  add(env::kGroupWorldSize, job.hosts);
  add(env::kNodeRank, place.host);
  add(env::kRoleName, "default");
  add(env::kRoleRank, rank);
  add(env::kRoleWorldSize, job.world_size);
  add(env::kMasterAddr, job.master_address);
  add(env::kMasterPort, job.master_port);
  add(env::kRunId, job.job_id);
  add(env::kRestartCount, job.restarts);
  add(env::kMaxRestarts, job.max_restarts);
  if (!error_file.empty()) add(env::kTorchErrorFile, error_file);
  if (place.visible_gpus) add(kVisibleGpus, *place.visible_gpus);
  const bool has_omp = std::any_of(inherited.begin(), inherited.end(), [](const auto& variable) {
    return name_in(variable) == kOmpThreads;
  });
  if (!has_omp) add(kOmpThreads, std::max(1, place.cpus / place.local_world_size));
  if (place.sagemaker) {
    add(kOfSageMaker[0], place.sagemaker->hosts);
    add(kOfSageMaker[1], place.sagemaker->current);
    add(kOfSageMaker[2], place.sagemaker->gpus);
  }
  if (const auto& at = place.coordinates) {
    add(env::kPipelineRank, at->pipeline);
    add(env::kTensorRank, at->tensor);
    add(env::kContextRank, at->context);
    add(env::kShardRank, at->shard);
    add(env::kReplicaRank, at->replica);
  }
  add(env::kJobId, job.job_id);
  add(env::kJobKey, job.job_key);
  if (!job.host_names.empty()) add(env::kHosts, job.host_names);
  if (!job.plan.empty()) add(env::kPlan, job.plan);
  if (!job.run_dir.empty()) add(env::kRunDir, job.run_dir);
  if (!job.resume.empty()) add(env::kResume, job.resume);
  if (!error_file.empty()) add(env::kErrorFile, error_file);
  return set;
}

std::string host_names_of(const std::vector<std::string>& hosts) {
  std::string names = fmt::format("{}", fmt::join(hosts, ","));
  return names.size() <= kMostHostNames ? names : "";
}

bool is_of_sagemaker(std::string_view name) {
  return std::find(std::begin(kOfSageMaker), std::end(kOfSageMaker), name) !=
         std::end(kOfSageMaker);
}

bool is_set_by_launcher(std::string_view name) {
  const auto is_name = [&](const char* one) { return name == one; };
  return std::any_of(std::begin(kOfEveryRank), std::end(kOfEveryRank), is_name) ||
         std::any_of(std::begin(kOurs), std::end(kOurs), is_name);
}

std::vector<std::string> merged_environment(const std::vector<std::string>& inherited,
                                            const std::vector<std::string>& set) {
  std::set<std::string_view> replaced(std::begin(kOurs), std::end(kOurs));
  for (const std::string& variable : set) replaced.insert(name_in(variable));
  std::vector<std::string> merged;
  for (const std::string& variable : inherited) {
    if (replaced.count(name_in(variable)) == 0) merged.push_back(variable);
  }
  merged.insert(merged.end(), set.begin(), set.end());
  return merged;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  return variables;
}

}  // namespace smp::environment
