#include "smp/launcher/agent/agent.h"
#include "smp/launcher/launch/launch.h"
#include "smp/launcher/reach/meeting.h"

namespace smp::launch {

int join_job(const request::LaunchRequest& request) {
  const request::HostRequest& hosts = request.hosts;
  return agent::run_agent(reach::join_meeting(
      reach::parse_meeting_place("--rendezvous", hosts.meeting.rendezvous),
      reach::read_key_file(hosts.meeting.key_file),
      {hosts.meeting.order, hosts.meeting.slots, hosts.meeting.nnodes}, hosts.connect_timeout));
}

}  // namespace smp::launch
