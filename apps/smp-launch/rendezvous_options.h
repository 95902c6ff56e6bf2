#pragma once

#include <string>

#include "smp/launcher/request/launch_request.h"

namespace CLI {
class App;
}

namespace smp {

// The options of a rendezvous, from CLI11 into a RendezvousRequest.
class RendezvousOptions {
 public:
  RendezvousOptions(CLI::App& app, request::RendezvousRequest& request);

  // After the command line was parsed; `prints`: for a dry run; `agents_come`: to --rendezvous.
  // Reads what mpirun says to this process, where it is asked for; one that has nothing to do
  // throws Information. Throws UsageError.
  void finish(bool prints, bool agents_come);

  // Whether options were given that contradict another source of hosts. Pods may need --nnodes.
  bool by_hand() const {
    return !inside_.empty() || (!request_.pods && (!nnodes_.empty() || !node_rank_.empty()));
  }

 private:
  void read_numbers();
  void read_pod_numbers();
  void read_mpi(bool prints);

  request::RendezvousRequest& request_;
  std::string nnodes_, node_rank_, inside_;
};

}  // namespace smp
