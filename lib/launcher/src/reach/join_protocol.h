#pragma once

#include <cstdint>
#include <string>

#include "smp/rendezvous/handshake/handshake.h"

// What a node and the leader of a rendezvous say to each other after their handshake.
namespace smp::reach {

constexpr uint64_t kJoinProtocol = 0x3254534f48504d53;  // "SMPHOST2"
// The leader's rank in the handshake: it may also lead without a node of its own.
constexpr int kLeader = -1;

// The kinds of the signed messages: a node's ranks (one number); the leader's verdict (one number).
constexpr const char* kSlotsMessage = "slots";
constexpr const char* kVerdictMessage = "verdict";

enum class JoinVerdict : uint64_t { kWelcome, kTaken, kOtherSlots };

// A node, or the leader, as a member of the job of all hosts.
inline handshake::Member member_of(int rank, int hosts, const std::string& key) {
  return {rank, hosts, "smp-launch", key};
}

}  // namespace smp::reach
