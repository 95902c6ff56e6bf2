#include "smp/launcher/agent/agent.h"
#include "smp/launcher/launch/launch.h"
#include "smp/launcher/reach/rendezvous.h"

namespace smp::launch {

int join_job(const request::LaunchRequest& request) {
  const request::HostRequest& hosts = request.hosts;
  return agent::run_agent(reach::join_rendezvous(
      reach::parse_rendezvous_endpoint("--rendezvous", hosts.rendezvous.endpoint),
      reach::read_key_file(hosts.rendezvous.key_file),
      {hosts.rendezvous.node_rank, hosts.rendezvous.slots, hosts.rendezvous.nnodes},
      hosts.connect_timeout));
}

}  // namespace smp::launch
