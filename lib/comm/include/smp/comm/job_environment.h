#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "smp/comm/communicator.h"
#include "smp/comm/exchange.h"
#include "smp/comm/fabric_options.h"

namespace smp {

// What a rank that smp-launch has started is told about its job, as far as it must find the others.
struct JobEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int hosts = 1;
  std::string job_id, job_key;
  std::chrono::milliseconds timeout{300000};
  int threads = 0;  // that make long calls; 0 = one, until a rank lends its CPUs
  // Of several hosts.
  std::string master_address;
  int master_port = 0;
  std::string provider, subnet, host_identity;
  std::optional<FabricProtocol> protocol;
  ExchangeRule exchange;
};

// What the environment says of the provider and of the network between hosts, "" where it says
// nothing. Throw ConfigError: "SMP_FABRIC_PROVIDER=x: smp knows efa, ...", "SMP_FABRIC_SUBNET: 'x'
// is no network: ...".
std::string read_fabric_provider();
std::string read_fabric_subnet();

// What the environment says of exchanges between hosts. Throws ConfigError:
// "SMP_FABRIC_EXCHANGE=x is not mesh, ring or doubling".
ExchangeRule read_exchange_rule();

// What the environment says of the protocol between hosts. Throws ConfigError:
// "SMP_FABRIC_PROTOCOL=x is not tagged or write".
std::optional<FabricProtocol> read_fabric_protocol();

// How many threads of a rank shall make its long calls, 0 where the environment does not say.
// Throws ConfigError: "SMP_COMM_THREADS=0 is not from 1 to 64".
int read_comm_threads();

// Reads what the environment says besides who a rank is: of the network between hosts, also where a
// job has one, of threads and of the time-out. Throws ConfigError as the above, and
// "SMP_COMM_TIMEOUT_S=0 is not from 0.001 to 31536000 seconds".
void read_settings(JobEnvironment& job);

// Reads all of it. Throws ConfigError as well: "RANK is not set; `program` is started by
// smp-launch, not by hand".
JobEnvironment read_job_environment(const std::string& program);

// The communicator of all ranks of the job. `report` is told one line about the network, on rank 0
// of several hosts. Throws as connect_shared_memory and connect_fabric do.
std::unique_ptr<Communicator> connect(const JobEnvironment& job,
                                      const std::function<void(const std::string&)>& report);

}  // namespace smp
