#include "smp/launcher/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <system_error>

#include "agent_session.h"
#include "pushed_folder.h"
#include "smp/launcher/guard.h"
#include "smp/launcher/local_host.h"

namespace smp {
namespace {

// Standard input and output become the channel, out of reach of the ranks, and of anything of ours
// that prints.
FrameChannel take_standard_streams() {
  FileDescriptor in(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  FileDescriptor out(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!in.is_open() || !out.is_open() || !null.is_open())
    throw std::system_error(errno, std::generic_category(), "smp-launch --agent");
  dup2(null.number(), STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return FrameChannel(std::move(in), std::move(out));
}

int run_over(FrameChannel channel) {
  const int in = channel.in();
  // Removed by whichever of the two processes lives longer.
  const PushedFolder pushed(PushedFolder::new_path());
  return run_guarded(
      [&](int control_fd) {
        LocalHost host;
        return AgentSession(std::move(channel), control_fd, host, make_transport, pushed.path())
            .run();
      },
      in);
}

}  // namespace

int run_agent() { return run_over(take_standard_streams()); }

int run_agent(FileDescriptor connection) {
  FileDescriptor out(fcntl(connection.number(), F_DUPFD_CLOEXEC, 0));
  if (!out.is_open()) throw std::system_error(errno, std::generic_category(), "smp-launch");
  return run_over(FrameChannel(std::move(connection), std::move(out)));
}

}  // namespace smp
