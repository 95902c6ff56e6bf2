#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/times.h"
#include "net/ofi_transport.h"
#include "waiting/observation.h"

namespace smp::testing {

// Two ends of libfabric in this process; messages go from `one`, as rank 0, to `other`, as rank 1.
struct TwoEnds {
  using Transfers = std::vector<net::FabricTransport::Transfer*>;

  std::unique_ptr<net::FabricTransport> one, other;

  TwoEnds(const std::string& provider, net::FabricProtocol protocol) {
    for (auto* end : {&one, &other})
      *end = net::open_ofi_transport("127.0.0.1", provider, protocol, 0).transport;
    one->set_peers({"", other->address()});
    other->set_peers({one->address(), ""});
  }
  // What has ended at `other` meanwhile.
  Transfers poll_both() {
    Transfers sent, came;
    one->poll(sent);
    other->poll(came);
    left += sent.size();
    const auto now = std::chrono::steady_clock::now();
    if (!sent.empty() || !came.empty()) without_news = {};
    without_news.observe(now);
    if (without_news.observed_for() > kSoon)
      throw std::runtime_error("nothing more comes or leaves");
    return came;
  }
  size_t left = 0;
  waiting::Observation without_news;
};

}  // namespace smp::testing
