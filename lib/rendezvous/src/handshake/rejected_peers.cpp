#include "smp/rendezvous/handshake/rejected_peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace smp::handshake {
namespace {

constexpr size_t kNamedOrigins = 4;

}  // namespace

std::string RejectedPeers::text() const {
  if (by_origin_.empty()) return "";
  int all = 0;
  std::vector<std::string> origins;
  for (const auto& [origin, count] : by_origin_) {
    all += count;
    if (origins.size() == kNamedOrigins) continue;
    origins.push_back(fmt::format("{} from {}", count, origin));
  }
  const size_t unnamed = by_origin_.size() - origins.size();
  return fmt::format("; {} {} rejected ({}{})", all,
                     all == 1 ? "connection was" : "connections were", fmt::join(origins, ", "),
                     unnamed == 0 ? "" : fmt::format(", the rest from {} other origins", unnamed));
}

}  // namespace smp::handshake
