#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "smp/launcher/host_group.h"
#include "smp/launcher/meeting.h"
#include "smp/launcher/transport.h"

namespace smp {

struct MpirunOptions {
  std::string arguments;  // --mpirun-args
  std::string agent;      // smp-launch on the hosts
  std::string at;         // an address and a port of this host; empty: of its own choice
  std::chrono::milliseconds time{30'000};  // for all agents to come
  std::set<int> ending_signals;            // USR1, USR2: where they end the waiting too
};

// One mpirun, of Open MPI or MPICH, starts an agent on every host, each of which connects to this
// process and proves that it knows a key, which mpirun hands it in its environment. So the hosts
// are reached as the user's mpirun reaches them. One thread.
class MpirunTransport : public Transport {
 public:
  // Starts mpirun. Throws ConfigError, StartError.
  MpirunTransport(const std::vector<HostSpec>& hosts, const MpirunOptions& options);
  ~MpirunTransport() override;

  // Waits for the agents; a number as Meeting::gather() does. Throws std::runtime_error when mpirun
  // has ended before, HostsUnreachable when the time is over.
  std::optional<int> gather(int control_fd);

  Command command_for(const HostSpec& host) const override;  // the same for all
  Line open(const HostSpec& host) override;
  int event_fd() const override { return events_.number(); }
  void dispatch() override;
  std::string why_way_ended() const override;

 private:
  std::string place() const;
  std::string words() const;
  HostsUnreachable unreachable();
  bool ends_in_time();
  void watch();

  std::vector<HostSpec> hosts_;
  MpirunOptions options_;
  bool is_hydra_;
  std::string key_;
  Meeting meeting_;
  Line mpirun_;
  FileDescriptor events_;          // epoll over its streams and its end
  std::string said_;               // by it, the first of it
  std::optional<ProcessEnd> end_;  // of one that the destructor waits for
  std::map<std::string, FileDescriptor> channels_;
};

// smp-launch --agent --meet HOST:PORT --node-rank ORDER, as mpirun starts it on the host that is
// number ORDER of the job. Returns the exit code.
int run_agent_of_mpirun(const std::string& place, int64_t order);

}  // namespace smp
