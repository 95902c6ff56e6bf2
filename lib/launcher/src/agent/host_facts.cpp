#include "smp/launcher/agent/host_facts.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reach/host_addresses.h"
#include "smp/plan/base/errors.h"

namespace smp::agent {

std::string address_of(const hosts::HostSpec& host, const HostFacts& facts,
                       const std::string& interface) {
  if (!interface.empty()) {
    for (const std::string& address : facts.addresses) {
      const size_t equals = address.find('=');
      if (address.substr(0, equals) == interface) return address.substr(equals + 1);
    }
    throw ConfigError(fmt::format(
        "--interface '{}': host {} has no address on this interface; its addresses: {}", interface,
        host.name,
        facts.addresses.empty() ? "none" : fmt::format("{}", fmt::join(facts.addresses, ", "))));
  }
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, host.name.c_str(), bytes.data()) == 1) return host.name;
  }
  // An agent started by --via exec: inherits the variables of this login, not those of its host.
  const bool is_its_own =
      std::any_of(facts.addresses.begin(), facts.addresses.end(), [&](const std::string& address) {
        return address.substr(address.find('=') + 1) == facts.reached_at;
      });
  if (is_its_own && !reach::is_loopback(facts.reached_at)) return facts.reached_at;
  if (facts.addresses.empty())
    throw ConfigError(fmt::format("host {} has no address that other hosts can reach", host.name));
  return facts.addresses.front().substr(facts.addresses.front().find('=') + 1);
}

}  // namespace smp::agent
