#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "smp/launcher/agent/shared_file.h"
#include "smp/launcher/health/host_health.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/job/host.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/rendezvous/wire/payload.h"

// The payloads of the frames between smp-launch and an agent. Decoding throws wire::ProtocolError.
namespace smp::agent {

constexpr uint32_t kProtocolVersion = 3;

struct HelloMessage {
  uint32_t protocol = kProtocolVersion;
  std::string build;
};

struct WelcomeMessage {
  uint32_t protocol = kProtocolVersion;
  std::string build;
  std::string folder;  // working folder of the ranks; empty: the folder of the pushed files
  uint32_t heartbeat_timeout_ms = 0;  // a peer that is silent for this time is lost
  bool reserves_port = false;
  bool asks_health = false;
  bool asks_topology = false;
  uint32_t usage_ms = 0;  // interval of usage samples; 0: none
  // Hosts that this agent reaches in the same way: places 1, 2, ... of its subtree.
  std::vector<hosts::HostSpec> below;
  int fan_out = 0;
  reach::AgentTransportOptions transport;
  std::vector<SharedFile> shared;  // files that the host must have
  std::set<int> told_signals;      // signals that the agent reports instead of ending its ranks
};

struct ReadyMessage {
  std::string name;  // the host's own name
  int cpus = 1;
  int port = 0;
  std::vector<std::string> addresses;        // "eth0=10.0.0.1"
  std::string network;                       // equal for hosts that share one loopback interface
  std::string reached_at;                    // address at which ssh reached the host; may be empty
  std::optional<health::HostHealth> health;  // if WelcomeMessage::asks_health
  std::string topology;  // CPUs (text_of_topology), if WelcomeMessage::asks_topology
};

struct StartMessage {
  int process = 0;
  int place = 0;  // of the host in the agent's subtree; 0: the agent's own host
  job::Command command;
};

std::string encode(const HelloMessage& message);
std::string encode(const WelcomeMessage& message);
std::string encode(const ReadyMessage& message);
// Sends only the environment variables that differ from those of `before` at the same index,
// because ranks differ in few variables.
std::string encode(const StartMessage& message, const job::Command& before);
std::string encode_progress(int process, const runinfo::RankProgress& progress);
std::string encode_end(int process, const process::ProcessEnd& end);

HelloMessage decode_hello(std::string_view bytes);
WelcomeMessage decode_welcome(std::string_view bytes);
ReadyMessage decode_ready(std::string_view bytes);
StartMessage decode_start(std::string_view bytes, const job::Command& before);
process::ProcessEnd decode_end(wire::PayloadReader& reader);
runinfo::RankProgress decode_progress(wire::PayloadReader& reader);

}  // namespace smp::agent
