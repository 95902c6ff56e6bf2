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
  std::string folder;  // where the ranks run; empty: among the files that will be pushed
  uint32_t heartbeat_timeout_ms = 0;  // after which the other side counts as lost
  bool reserves_port = false;
  bool asks_health = false;
  bool asks_topology = false;
  uint32_t usage_ms = 0;  // how often to tell what the ranks use; 0: never
  // Hosts that this agent reaches, by the same means: its subtree, places 1, 2, ... of it.
  std::vector<hosts::HostSpec> below;
  int fan_out = 0;
  reach::AgentTransportOptions transport;
  std::vector<SharedFile> shared;  // that it must have
  std::set<int> told_signals;      // that do not end it while ranks run: it tells them
};

struct ReadyMessage {
  std::string name;  // what the host calls itself
  int cpus = 1;
  int port = 0;
  std::vector<std::string> addresses;        // "eth0=10.0.0.1"
  std::string network;                       // equal where the loopback interface is the same one
  std::string reached_at;                    // the address under which ssh reached it; may be empty
  std::optional<health::HostHealth> health;  // where it was asked for
  std::string topology;  // of its CPUs (text_of_topology), where it was asked for
};

struct StartMessage {
  int process = 0;
  int place = 0;  // of the host in the agent's subtree; 0: its own
  job::Command command;
};

std::string encode(const HelloMessage& message);
std::string encode(const WelcomeMessage& message);
std::string encode(const ReadyMessage& message);
// Ranks differ in few variables: those that stand where the command before had the same are not
// sent.
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
