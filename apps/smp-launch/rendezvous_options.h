#pragma once

#include <string>

#include "smp/launcher/request/launch_request.h"

namespace CLI {
class App;
}

namespace smp {

// The options about it, on their way from CLI11 into a RendezvousRequest.
class RendezvousOptions {
 public:
  RendezvousOptions(CLI::App& app, request::RendezvousRequest& request);

  // After the command line was parsed; `prints`: for a dry run; `agents_come`: to --rendezvous.
  // Reads what mpirun says to this process, where it is asked for; one that has nothing to do
  // throws Information. Throws UsageError.
  void finish(bool prints, bool agents_come);

  // Words that no other source of the hosts leaves room for; one of pods may need their number.
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
