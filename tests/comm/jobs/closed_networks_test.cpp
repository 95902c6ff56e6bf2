#include <doctest/doctest.h>
#include <malloc.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "comm/network.h"
#include "comm/processes.h"
#include "comm/two_ends.h"

// Networks that end while messages come.
using namespace smp;
using namespace smp::net;
using namespace smp::testing;

namespace {

using net::FabricTransport;

// "good", unless it dies.
std::string close_in_the_middle(const std::string& provider) {
  constexpr int kRounds = 20;
  constexpr unsigned kMostPolls = 50;
  constexpr size_t kPieces = 8, kBytes = 100000;
  mallopt(M_PERTURB, 0xa5);  // what is used after it has been freed has other bytes
  std::mt19937 random(1);
  for (int round = 0; round < kRounds; ++round) {
    TwoEnds ends(provider, FabricProtocol::kTagged);
    const auto from = ends.one->allocate(kPieces * kBytes);
    const auto to = ends.other->allocate(kPieces * kBytes);
    std::vector<FabricTransport::Transfer> sends(kPieces), receives(kPieces);
    for (size_t i = 0; i < kPieces; ++i) {
      sends[i].memory = from.get();
      receives[i].memory = to.get();
      sends[i].at = receives[i].at = i * kBytes;
      sends[i].bytes = receives[i].bytes = kBytes;
      sends[i].peer = 1;
      if (!ends.other->receive(receives[i])) return "no room for a receive";
    }
    size_t came = 0;
    for (FabricTransport::Transfer& send : sends)
      while (!ends.one->send(send)) came += ends.poll_both().size();
    while (came == 0) came += ends.poll_both().size();
    // It sees to its messages, and does not take them.
    for (unsigned i = random() % kMostPolls; i > 0; --i) {
      TwoEnds::Transfers sent;
      ends.one->poll(sent);
      ends.other->wait_descriptor();
    }
    ends.other.reset();
    ends.one.reset();
  }
  return "good";
}

}  // namespace

TEST_CASE("over libfabric: a network can end in the middle of messages") {
  if (!has_network()) return;
  for (const std::string& provider : network_providers({"net", "tcp;ofi_rxm"}))
    CHECK(Child([&] { return close_in_the_middle(provider); }).join().said == "good");
}
