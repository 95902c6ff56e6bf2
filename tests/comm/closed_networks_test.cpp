#include <doctest/doctest.h>
#include <malloc.h>

#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "comm/network.h"
#include "comm/processes.h"
#include "ofi_transport.h"

// Networks that end while messages come.
using namespace smp;
using namespace smp::testing;

namespace {

using shm::Transport;

// "good", unless it dies.
std::string close_in_the_middle(const std::string& provider) {
  constexpr int kRounds = 20;
  constexpr unsigned kMostPolls = 50;
  constexpr size_t kPieces = 8, kBytes = 100000;
  mallopt(M_PERTURB, 0xa5);  // what is used after it has been freed has other bytes
  std::mt19937 random(1);
  for (int round = 0; round < kRounds; ++round) {
    std::unique_ptr<Transport> one, other;
    for (auto* end : {&one, &other})
      *end = shm::open_ofi_transport("127.0.0.1", provider, FabricProtocol::kTagged, 0).transport;
    one->set_peers({"", other->address()});
    other->set_peers({one->address(), ""});
    const auto from = one->allocate(kPieces * kBytes), to = other->allocate(kPieces * kBytes);
    std::vector<Transport::Transfer> sends(kPieces), receives(kPieces);
    std::vector<Transport::Transfer*> sent, came;
    for (size_t i = 0; i < kPieces; ++i) {
      sends[i].memory = from.get();
      receives[i].memory = to.get();
      sends[i].at = receives[i].at = i * kBytes;
      sends[i].bytes = receives[i].bytes = kBytes;
      sends[i].peer = 1;
      other->receive(receives[i]);
    }
    for (Transport::Transfer& send : sends)
      while (!one->send(send)) {
        one->poll(sent);
        other->poll(came);
      }
    while (came.empty()) {
      one->poll(sent);
      other->poll(came);
    }
    // It sees to its messages, and does not take them.
    for (unsigned i = random() % kMostPolls; i > 0; --i) {
      one->poll(sent);
      other->where_to_sleep();
    }
    other.reset();
    one.reset();
  }
  return "good";
}

}  // namespace

TEST_CASE("over libfabric: a network can end in the middle of messages") {
  if (!has_network()) return;
  for (const std::string& provider : network_providers({"net", "tcp;ofi_rxm"}))
    CHECK(Child([&] { return close_in_the_middle(provider); }).join().said == "good");
}
