#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/launcher/schedulers/all_hosts_transport.h"

namespace smp::schedulers {

// One mpirun, of Open MPI or MPICH, starts an agent on every host. So the hosts are reached as the
// user's mpirun reaches them.
class MpirunTransport final : public AllHostsTransport {
 public:
  // Throws ConfigError.
  MpirunTransport(const std::vector<hosts::HostSpec>& hosts, const AllHostsOptions& options);

  job::Command command_for(const hosts::HostSpec& host) const override;  // the same for all

 private:
  // Throws HostsUnreachable when the time is over, else std::runtime_error.
  void are_missing(const std::vector<std::string>& hosts, bool is_over) override;
  std::string place() const;

  bool is_hydra_;
};

// smp-launch --agent --meet HOST:PORT --node-rank RANK, as mpirun starts it on the host that is
// number RANK of the job. Returns the exit code.
int run_agent_of_mpirun(const std::string& place, int64_t node_rank);

}  // namespace smp::schedulers
