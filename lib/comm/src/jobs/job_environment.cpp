#include "smp/comm/jobs/job_environment.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bootstrap/interfaces.h"
#include "net/fabric_protocol.h"
#include "smp/comm/jobs/fabric.h"
#include "smp/comm/jobs/shared_memory.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/env/environment_reader.h"

namespace smp::jobs {
namespace {

std::optional<net::Exchange> exchange_named(const std::string& text) {
  if (text.empty()) return std::nullopt;
  for (const net::Exchange exchange : net::kExchanges)
    if (name_of(exchange) == text) return exchange;
  throw ConfigError(
      fmt::format("{}={}: expected mesh, ring or doubling", env::kFabricExchange, text));
}

// A time-out in seconds; a call counts milliseconds.
std::chrono::milliseconds timeout_of(const std::string& text) {
  constexpr double kLeast = 0.001, kMost = 31536000;  // a year
  const auto seconds = env::number<double>(env::kCommTimeout, text);
  if (!(seconds >= kLeast && seconds <= kMost))
    throw ConfigError(fmt::format("{}={}: expected {} to {:.0f} seconds", env::kCommTimeout, text,
                                  kLeast, kMost));
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

std::string read_fabric_provider() {
  std::string provider = env::optional(env::kFabricProvider);
  if (!provider.empty()) net::check_provider(provider);
  return provider;
}

std::string read_fabric_subnet() {
  std::string subnet = env::optional(env::kFabricSubnet);
  try {
    bootstrap::check_subnets(subnet);
  } catch (const std::runtime_error& error) {
    throw ConfigError(fmt::format("{}: {}", env::kFabricSubnet, error.what()));
  }
  return subnet;
}

std::optional<net::FabricProtocol> read_fabric_protocol() {
  const std::string text = env::optional(env::kFabricProtocol);
  if (text.empty()) return std::nullopt;
  for (const net::FabricProtocol protocol :
       {net::FabricProtocol::kTagged, net::FabricProtocol::kWrite})
    if (name_of(protocol) == text) return protocol;
  throw ConfigError(fmt::format("{}={}: expected tagged or write", env::kFabricProtocol, text));
}

net::ExchangeRule read_exchange_rule() {
  net::ExchangeRule rule;
  rule.pinned = exchange_named(env::optional(env::kFabricExchange));
  const std::string cost = env::optional(env::kFabricCost);
  if (cost.empty()) return rule;
  try {
    rule.cost = net::network_cost_of(cost);
    rule.cost_of = env::kFabricCost;
  } catch (const std::invalid_argument& error) {
    throw ConfigError(fmt::format("{}: {}", env::kFabricCost, error.what()));
  }
  return rule;
}

int read_comm_threads() {
  constexpr int kMost = 64;
  const std::string text = env::optional(env::kCommThreads);
  if (text.empty()) return 0;
  const int threads = env::number<int>(env::kCommThreads, text);
  if (threads < 1 || threads > kMost)
    throw ConfigError(
        fmt::format("{}={}: expected a whole number from 1 to {}", env::kCommThreads, text, kMost));
  return threads;
}

void read_settings(JobEnvironment& job) {
  job.provider = read_fabric_provider();
  job.subnet = read_fabric_subnet();
  job.protocol = read_fabric_protocol();
  job.exchange = read_exchange_rule();
  job.threads = read_comm_threads();
  const std::string timeout = env::optional(env::kCommTimeout);
  if (!timeout.empty()) job.timeout = timeout_of(timeout);
}

JobEnvironment read_job_environment(const std::string& program) {
  const auto number_in = [&](const char* name) {
    return env::number<int>(name, env::required(name, program));
  };
  JobEnvironment job;
  job.rank = number_in(env::kRank);
  job.size = number_in(env::kWorldSize);
  job.local_rank = number_in(env::kLocalRank);
  job.local_size = number_in(env::kLocalWorldSize);
  const std::string hosts = env::optional(env::kGroupWorldSize);
  if (!hosts.empty()) job.hosts = env::number<int>(env::kGroupWorldSize, hosts);
  if (job.hosts > 1) {
    job.master_address = env::required(env::kMasterAddr, program);
    job.master_port = number_in(env::kMasterPort);
    job.host_identity = env::optional(env::kHostIdentity);
  }
  job.job_id = env::required(env::kJobId, program);
  job.job_key = env::required(env::kJobKey, program);
  read_settings(job);
  return job;
}

std::unique_ptr<comm::Communicator> connect(const JobEnvironment& job,
                                            const std::function<void(const std::string&)>& report) {
  if (job.hosts == 1) {
    SharedMemoryOptions options;
    options.rank = job.rank;
    options.size = job.size;
    options.job_id = job.job_id;
    options.job_key = job.job_key;
    options.timeout = job.timeout;
    options.threads = job.threads;
    return connect_shared_memory(options);
  }
  net::FabricOptions options;
  options.rank = job.rank;
  options.size = job.size;
  options.job_id = job.job_id;
  options.job_key = job.job_key;
  options.timeout = job.timeout;
  options.master_address = job.master_address;
  options.master_port = job.master_port;
  options.local_rank = job.local_rank;
  options.provider = job.provider;
  options.protocol = job.protocol;
  options.subnet = job.subnet;
  options.host_identity = job.host_identity;
  options.exchange = job.exchange;
  options.threads = job.threads;
  if (job.rank == 0) options.report = report;
  return connect_fabric(options);
}

}  // namespace smp::jobs
