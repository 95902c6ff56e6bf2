#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace smp {

// A start by hand, by a scheduler or by mpirun on each of `nnodes` hosts; the first leads.
struct MeetingRequest {
  int nnodes = 0;  // 0: not so
  int order = -1;  // of this host among them; 0 leads; -1: not said
  int slots = 0;   // ranks of this host; 0: not said
  std::string rendezvous, key_file;
  std::vector<std::string> names;  // of the hosts; empty: they have none yet
  int ranks = 0;                   // that the outer launcher has started; 0: not said
  std::string starter = "mpirun";  // that launcher, in words for the user
  bool pods = false;               // the hosts are pods of Kubernetes

  bool wanted() const { return nnodes > 0; }
};

// The options about it, on their way from CLI11 into a MeetingRequest.
class MeetingOptions {
 public:
  MeetingOptions(CLI::App& app, MeetingRequest& request);

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

  MeetingRequest& request_;
  std::string nnodes_, node_rank_, inside_;
};

}  // namespace smp
