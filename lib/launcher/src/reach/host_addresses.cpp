#include "reach/host_addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "reach/rendezvous_messages.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::reach {
namespace {

constexpr int kDiscardPort = 9;

// "" for an address that says nothing to others.
std::string text_of_address(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return "";
    inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
  }
  return text.data();
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
      const std::string text = text_of_address(one->ifa_addr);
      if (!text.empty()) addresses.push_back(fmt::format("{}={}", one->ifa_name, text));
    }
  }
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string own_address_towards(const std::string& host) {
  const AddressList list({host, kDiscardPort});
  for (const addrinfo* one = list.first(); one != nullptr; one = one->ai_next) {
    const system::FileDescriptor udp(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST] = "";
    // Nothing is sent: the kernel looks for the way alone.
    if (connect(udp.number(), one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(udp.number(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0)
      return text;
  }
  return "";
}

std::string own_network() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/net", error).string();
  if (boot.empty() || error)
    throw std::runtime_error("cannot tell which host this is: /proc is not there");
  return boot + " " + space;
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
