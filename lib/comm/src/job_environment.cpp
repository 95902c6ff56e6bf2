#include "smp/comm/job_environment.h"

#include "smp/comm/fabric.h"
#include "smp/comm/shared_memory.h"
#include "smp/plan/environment.h"
#include "smp/plan/environment_reader.h"

namespace smp {

JobEnvironment read_job_environment(const std::string& program) {
  const auto number_in = [&](const char* name) {
    return env::number<int>(name, env::required(name, program));
  };
  JobEnvironment job;
  job.rank = number_in(env::kRank);
  job.size = number_in(env::kWorldSize);
  job.local_size = number_in(env::kLocalWorldSize);
  const std::string hosts = env::optional(env::kGroupWorldSize);
  if (!hosts.empty()) job.hosts = env::number<int>(env::kGroupWorldSize, hosts);
  if (job.hosts > 1) {
    job.master_address = env::required(env::kMasterAddr, program);
    job.master_port = number_in(env::kMasterPort);
    job.provider = env::optional(env::kFabricProvider);
    job.subnet = env::optional(env::kFabricSubnet);
    job.host_identity = env::optional(env::kHostIdentity);
  }
  job.job_id = env::required(env::kJobId, program);
  job.job_key = env::required(env::kJobKey, program);
  const std::string timeout = env::optional(env::kCommTimeout);
  if (!timeout.empty()) {
    const double seconds = env::number<double>(env::kCommTimeout, timeout);
    job.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  }
  return job;
}

std::unique_ptr<Communicator> connect(const JobEnvironment& job,
                                      const std::function<void(const std::string&)>& report) {
  if (job.hosts == 1) {
    SharedMemoryOptions options;
    options.rank = job.rank;
    options.size = job.size;
    options.job_id = job.job_id;
    options.job_key = job.job_key;
    options.timeout = job.timeout;
    return connect_shared_memory(options);
  }
  FabricOptions options;
  options.rank = job.rank;
  options.size = job.size;
  options.job_id = job.job_id;
  options.job_key = job.job_key;
  options.timeout = job.timeout;
  options.master_address = job.master_address;
  options.master_port = job.master_port;
  options.provider = job.provider;
  options.subnet = job.subnet;
  options.host_identity = job.host_identity;
  if (job.rank == 0) options.report = report;
  return connect_fabric(options);
}

}  // namespace smp
