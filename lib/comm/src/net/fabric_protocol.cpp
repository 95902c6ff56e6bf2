#include "net/fabric_protocol.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"

namespace smp::net {
namespace {

// As measured (docs/lab/figures-collectives.md). The receiver of tagged messages of tcp;ofi_rxm
// requests them first. Calls of net take equally long by both protocols, but streams by tagged
// messages take up to a tenth longer. tcp, the later name of net, was not measured.
bool is_faster_by_writes(const std::string& provider) {
  return provider == "tcp;ofi_rxm" || provider == "net";
}

}  // namespace

void check_provider(const std::string& name) {
  const auto* const end = std::end(kProviders);
  if (std::find(std::begin(kProviders), end, name) == end && name != kInsideHost)
    throw ConfigError(fmt::format("{}={}: expected one of {}, {}", env::kFabricProvider, name,
                                  fmt::join(kProviders, ", "), kInsideHost));
}

std::optional<std::string> open_by_protocol(
    const std::string& provider, std::optional<FabricProtocol> wanted,
    const std::function<std::optional<std::string>(bool writes)>& open) {
  const bool writes = wanted ? *wanted == FabricProtocol::kWrite : is_faster_by_writes(provider);
  const auto why_not = open(writes);
  if (!why_not) {
    if (wanted) return fmt::format("as {} says", env::kFabricProtocol);
    return fmt::format("the {} protocol of {}", writes ? "faster" : "usual", provider);
  }
  if (!writes || open(false)) return std::nullopt;
  if (wanted)
    throw ConfigError(
        fmt::format("{}=write: provider {} does not support writes with a completion at the peer "
                    "(FI_RMA, FI_REMOTE_CQ_DATA): {}",
                    env::kFabricProtocol, provider, *why_not));
  return fmt::format("{} does not support writes: {}", provider, *why_not);
}

}  // namespace smp::net
