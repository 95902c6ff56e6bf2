#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "descriptor.h"
#include "handshake.h"
#include "ofi_transport.h"
#include "smp/comm/fabric_options.h"

namespace smp::shm {

// What a rank tells the others of itself.
struct Card {
  int rank = 0;
  std::string host_identity;  // equal for ranks that can share memory
  std::string host_name, address;
  int door = 0;          // the port at which it is found when the job has failed
  std::string settings;  // what must be the same on all ranks
  std::string endpoint;  // where its messages go
};

// What a process has once the ranks of all hosts have come together.
struct HostMeeting {
  std::vector<Card> cards;          // by rank
  std::vector<Descriptor> sockets;  // rank 0: to each other rank; others: to rank 0, at place 0
  Descriptor door;                  // of this rank
  OpenedTransport network;
  uint64_t secret = 0;  // that every message between hosts carries
};

// All ranks connect to rank 0 over TCP. Each side proves that it knows the job's key; who does not
// is dropped. Rank 0 compares the settings of all and hands out the cards, or says what is wrong.
// Throws CommError.
HostMeeting meet_hosts(const Participant& self, const FabricOptions& options);

}  // namespace smp::shm
