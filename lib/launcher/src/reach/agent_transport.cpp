#include "smp/launcher/reach/agent_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "process/spawn.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/shell_words.h"
#include "smp/launcher/process/file_limit.h"
#include "smp/launcher/process/process_end.h"
#include "smp/plan/base/errors.h"

namespace smp::reach {
namespace {

constexpr std::string_view kExec = "exec:";
constexpr int kNoCommand = 127;  // of a shell
constexpr int kSshFailed = 255;

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of("\r\n \t");
  if (end == text.npos) return "";
  const size_t before = text.find_last_of("\r\n", end);
  return text.substr(before + 1, end - before);
}

std::string with_words(const std::string& reason, const std::string& errors) {
  const std::string line = last_line(errors);
  return line.empty() ? reason : fmt::format("{} ({})", reason, line);
}

class LocalTransport : public AgentTransport {
 public:
  explicit LocalTransport(std::string agent) : agent_(std::move(agent)) {}
  job::Command command_for(const hosts::HostSpec&) const override {
    return {{agent_, "--agent"}, environment::own_environment(), ""};
  }

 private:
  std::string agent_;
};

class JoinedAgentsTransport : public LocalTransport {
 public:
  JoinedAgentsTransport(std::map<std::string, system::FileDescriptor> channels, std::string agent)
      : LocalTransport(std::move(agent)), channels_(std::move(channels)) {}
  AgentStreams open(const hosts::HostSpec& host) override {
    const auto found = channels_.find(host.name);
    if (found == channels_.end()) return LocalTransport::open(host);
    AgentStreams line;
    line.in = std::move(found->second);
    line.out = system::FileDescriptor(fcntl(line.in.number(), F_DUPFD_CLOEXEC, 0));
    return line;
  }

 private:
  std::map<std::string, system::FileDescriptor> channels_;
};

class ExecTransport : public AgentTransport {
 public:
  ExecTransport(std::string script, std::string agent)
      : script_(std::move(script)), agent_(std::move(agent)) {}
  job::Command command_for(const hosts::HostSpec& host) const override {
    return {{"/bin/sh", "-c", script_},
            environment::merged_environment(
                environment::own_environment(),
                {fmt::format("SMP_HOST={}", host.name), fmt::format("SMP_HOST_USER={}", host.user),
                 host.port == 0 ? "SMP_HOST_PORT=" : fmt::format("SMP_HOST_PORT={}", host.port),
                 fmt::format("SMP_AGENT={}", agent_)}),
            ""};
  }

 private:
  std::string script_, agent_;
};

class SshTransport : public AgentTransport {
 public:
  SshTransport(std::vector<std::string> arguments, std::string agent)
      : arguments_(std::move(arguments)), agent_(std::move(agent)) {}
  job::Command command_for(const hosts::HostSpec& host) const override {
    // The user's own arguments come first: of an option given twice ssh takes the first.
    std::vector<std::string> words = {"ssh"};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    for (const char* word : {"-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5"})
      words.emplace_back(word);
    if (host.port != 0) {
      words.emplace_back("-p");
      words.push_back(std::to_string(host.port));
    }
    words.emplace_back("--");
    words.push_back(host.user.empty() ? host.name : fmt::format("{}@{}", host.user, host.name));
    words.push_back(fmt::format("{} --agent", hosts::quoted_for_shell(agent_)));
    return {words, environment::own_environment(), ""};
  }
  std::string why_not_reached(const process::ProcessEnd& end,
                              const std::string& errors) const override;
  bool was_dropped(const process::ProcessEnd& end, const std::string& errors) const override;

 private:
  std::vector<std::string> arguments_;
  std::string agent_;
};

// ssh's own words, and what they mean.
struct SshFailure {
  const char* words;
  const char* reason;
};
constexpr std::array<SshFailure, 14> kSshFailures = {{
    {"Host key verification failed",
     "host key not accepted: log in once by hand, or fix known_hosts"},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", "host key changed: fix known_hosts"},
    {"Permission denied", "login refused: smp-launch needs a key that works without a password"},
    {"Too many authentication failures", "login refused: too many keys were tried"},
    {"Could not resolve hostname", "name not known"},
    {"Connection refused", "connection refused: no sshd there"},
    {"No route to host", "no route"},
    {"Network is unreachable", "no route"},
    {"timed out", "no answer"},
    {"Connection closed by", "connection closed by its sshd"},
    {"Connection reset", "connection reset by its sshd"},
    {"Bad configuration option", "ssh rejected an option: check --ssh-args"},
    {"unknown option", "ssh rejected an option: check --ssh-args"},
    {"command-line", "ssh rejected an option: check --ssh-args"},
}};

std::string SshTransport::why_not_reached(const process::ProcessEnd& end,
                                          const std::string& errors) const {
  if (end.exit_code == kSshFailed) {
    for (const SshFailure& failure : kSshFailures) {
      if (errors.find(failure.words) != errors.npos) return with_words(failure.reason, errors);
    }
  }
  if (end.exit_code == kNoCommand)
    return with_words(
        fmt::format("no smp-launch at '{}' on that host: give its path with --agent-path", agent_),
        errors);
  return AgentTransport::why_not_reached(end, errors);
}

// What sshd, also that of a jump host, does with connections beyond its MaxStartups, before it has
// said a word.
constexpr std::array kDrops = {"exchange_identification: Connection closed by remote host",
                               "exchange_identification: read: Connection reset by peer"};

bool SshTransport::was_dropped(const process::ProcessEnd& end, const std::string& errors) const {
  return end.exit_code == kSshFailed &&
         std::any_of(kDrops.begin(), kDrops.end(),
                     [&](const char* words) { return errors.find(words) != errors.npos; });
}

struct Pipe {
  system::FileDescriptor read_end, write_end;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot start an agent: pipe");
  return {system::FileDescriptor(ends[0]), system::FileDescriptor(ends[1])};
}

}  // namespace

AgentStreams AgentTransport::open(const hosts::HostSpec& host) {
  const job::Command command = command_for(host);
  Pipe to = make_pipe(), from = make_pipe(), errors = make_pipe();
  process::ChildSetup setup;
  setup.arguments = &command.arguments;
  setup.environment = &command.environment;
  setup.in = to.read_end.number();
  setup.out = from.write_end.number();
  setup.err = errors.write_end.number();
  sigemptyset(&setup.signal_mask);
  setup.open_files = process::RaisedFileLimit::before();
  AgentStreams line;
  line.pid = process::Spawner().spawn(setup);
  if (line.pid < 0)
    throw job::StartError(
        fmt::format("cannot start '{}': {}", command.arguments.front(), strerror(errno)));
  line.process = system::FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, line.pid, 0)));
  if (!line.process) {
    const int error = errno;
    kill(-line.pid, SIGKILL);
    waitpid(line.pid, nullptr, 0);
    throw std::system_error(error, std::generic_category(), "pidfd_open");
  }
  fcntl(errors.read_end.number(), F_SETFL, O_NONBLOCK);
  line.errors = std::move(errors.read_end);
  line.in = std::move(from.read_end);
  line.out = std::move(to.write_end);
  return line;
}

std::string AgentTransport::why_not_reached(const process::ProcessEnd& end,
                                            const std::string& errors) const {
  return with_words(fmt::format("no agent: the command {}", process::text_of(end)), errors);
}

std::unique_ptr<AgentTransport> joined_agents_transport(
    std::map<std::string, system::FileDescriptor> channels, const std::string& agent) {
  return std::make_unique<JoinedAgentsTransport>(std::move(channels), agent);
}

std::unique_ptr<AgentTransport> make_agent_transport(const AgentTransportOptions& options) {
  if (options.via == "ssh")
    return std::make_unique<SshTransport>(
        hosts::words_of_command("--ssh-args", options.ssh_arguments), options.agent);
  if (!options.ssh_arguments.empty())
    throw ConfigError(
        fmt::format("--ssh-args cannot be used with --via {}: it needs --via ssh", options.via));
  if (options.via == "local") return std::make_unique<LocalTransport>(options.agent);
  if (options.via.starts_with(kExec) && options.via.size() > kExec.size())
    return std::make_unique<ExecTransport>(options.via.substr(kExec.size()), options.agent);
  throw ConfigError(
      fmt::format("--via '{}': expected ssh, srun, mpirun, local or exec:COMMAND", options.via));
}

}  // namespace smp::reach
