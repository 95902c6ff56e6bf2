#include "smp/launcher/agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <system_error>

#include "agent/agent_session.h"
#include "agent/received_folder.h"
#include "smp/launcher/local/local_host.h"
#include "smp/launcher/process/watchdog.h"

namespace smp::agent {
namespace {

// Turns standard input and output into the channel. Ranks, and code that prints, cannot reach the
// channel after that.
reach::FrameChannel take_standard_streams() {
  system::FileDescriptor in(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  system::FileDescriptor out(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const system::FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!in || !out || !null)
    throw std::system_error(errno, std::generic_category(), "smp-launch --agent");
  dup2(null.number(), STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return reach::FrameChannel(std::move(in), std::move(out));
}

int run_over(reach::FrameChannel channel) {
  const int in = channel.in();
  // The process that lives longer removes the folder.
  const ReceivedFolder pushed(ReceivedFolder::new_path());
  return process::run_with_watchdog(
      [&](int control_fd) {
        local::LocalHost host;
        return AgentSession(std::move(channel), control_fd, host, reach::make_agent_transport,
                            pushed.path())
            .run();
      },
      in);
}

}  // namespace

int run_agent() { return run_over(take_standard_streams()); }

int run_agent(system::FileDescriptor connection) {
  system::FileDescriptor out(fcntl(connection.number(), F_DUPFD_CLOEXEC, 0));
  if (!out) throw std::system_error(errno, std::generic_category(), "smp-launch");
  return run_over(reach::FrameChannel(std::move(connection), std::move(out)));
}

}  // namespace smp::agent
