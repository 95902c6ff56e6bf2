#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// By which of libfabric's networks the tests talk: SMP_FABRIC_PROVIDER names one for all of them
// (scripts/sweep-collectives providers), "none" stands for a machine without.
namespace smp::testing {

// As in FabricOptions: the best that is here if nothing is said.
inline std::string network_provider() {
  const char* const provider = std::getenv("SMP_FABRIC_PROVIDER");
  return provider == nullptr ? "" : provider;
}

inline bool has_network() {
  if (network_provider() != "none") return true;
  std::puts("skipped: SMP_FABRIC_PROVIDER is none");
  return false;
}

// Who dies or is stopped may hold a lock of libfabric's shm in the memory that it shares with the
// others, who then wait for it within libfabric (docs/between-hosts.md).
inline bool outlives_deaths() { return network_provider() != "shm"; }

// shm has no descriptor to sleep at, as EFA.
inline bool can_be_slept_at(const std::string& provider) { return provider != "shm"; }

// The one that is named, or else those.
inline std::vector<std::string> network_providers(const std::vector<std::string>& usual) {
  const std::string provider = network_provider();
  return provider.empty() ? usual : std::vector{provider};
}

}  // namespace smp::testing
