#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "smp/comm/communicator.h"
#include "smp/comm/net/exchange.h"
#include "smp/comm/net/fabric_options.h"

namespace smp::jobs {

// The environment variables by which smp-launch tells a rank of its job, as far as the rank needs
// them to connect to the others.
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
  std::optional<net::FabricProtocol> protocol;
  net::ExchangeRule exchange;
};

// Read the provider and the network between hosts from the environment; "" where it names none.
// Throw ConfigError: "SMP_FABRIC_PROVIDER=x: smp knows efa, ...", "SMP_FABRIC_SUBNET: 'x' is no
// network: ...".
std::string read_fabric_provider();
std::string read_fabric_subnet();

// Reads the rule of exchanges between hosts. Throws ConfigError: "SMP_FABRIC_EXCHANGE=x is not
// mesh, ring or doubling".
net::ExchangeRule read_exchange_rule();

// Reads the protocol between hosts. Throws ConfigError: "SMP_FABRIC_PROTOCOL=x is not tagged or
// write".
std::optional<net::FabricProtocol> read_fabric_protocol();

// Reads how many threads of a rank make its long calls; 0 if the variable is not set. Throws
// ConfigError: "SMP_COMM_THREADS=0 is not from 1 to 64".
int read_comm_threads();

// Reads all settings but the rank's identity: the network between hosts, threads and the time-out.
// Throws ConfigError as the functions above, and "SMP_COMM_TIMEOUT_S=0 is not from 0.001 to
// 31536000 seconds".
void read_settings(JobEnvironment& job);

// Reads everything. Also throws ConfigError: "RANK is not set; `program` is started by smp-launch,
// not by hand".
JobEnvironment read_job_environment(const std::string& program);

// Returns the communicator of all ranks of the job. On rank 0 of several hosts, `report` is called
// with one line about the network. Throws as connect_shared_memory and connect_fabric do.
std::unique_ptr<comm::Communicator> connect(const JobEnvironment& job,
                                            const std::function<void(const std::string&)>& report);

}  // namespace smp::jobs
