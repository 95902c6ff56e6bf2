#include "reach/host_addresses.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <memory>
#include <sstream>

#include "smp/rendezvous/sockets/tcp_socket.h"

namespace smp::reach {
namespace {

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

std::vector<std::string> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
      if (is_link_local(one->ifa_addr)) continue;
      addresses.push_back(
          fmt::format("{}={}", one->ifa_name, sockets::text_of_address(one->ifa_addr)));
    }
  }
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string address_reached_by_ssh() {
  const char* connection = std::getenv("SSH_CONNECTION");  // client, its port, server, its port
  if (connection == nullptr) return "";
  std::istringstream words(connection);
  std::string client, port, server;
  words >> client >> port >> server;
  return server;
}

}  // namespace smp::reach
