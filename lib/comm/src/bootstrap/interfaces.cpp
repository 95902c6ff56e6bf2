#include "bootstrap/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "net/nearest_nic.h"
#include "smp/plan/env/environment.h"
#include "smp/rendezvous/sockets/tcp_socket.h"

namespace smp::bootstrap {
namespace {

// The bytes of an IP address, 4 or 16; none of what is no address.
std::vector<uint8_t> bytes_of_address(const std::string& text) {
  std::vector<uint8_t> bytes(16);
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return bytes;
  bytes.resize(4);
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) return bytes;
  return {};
}

struct Subnet {
  explicit Subnet(const std::string& text)
      : base(bytes_of_address(text.substr(0, text.find('/')))) {
    const size_t slash = text.find('/');
    const char* const end = text.data() + text.size();
    const char* after = text.data();
    if (slash != text.npos) after = std::from_chars(after + slash + 1, end, bits).ptr;
    if (base.empty() || bits < 0 || size_t(bits) > 8 * base.size() || after != end)
      throw std::runtime_error(
          fmt::format("'{}' is not a network: expected ADDRESS/BITS, as in 10.0.0.0/16, or several "
                      "separated by commas",
                      text));
  }

  bool holds(const std::string& address) const {
    const std::vector<uint8_t> bytes = bytes_of_address(address);
    if (bytes.size() != base.size()) return false;
    for (int bit = 0; bit < bits; ++bit)
      if (((bytes[size_t(bit / 8)] ^ base[size_t(bit / 8)]) >> (7 - bit % 8)) & 1) return false;
    return true;
  }

  std::vector<uint8_t> base;
  int bits = -1;
};

std::vector<Subnet> subnets_in(const std::string& text) {
  std::vector<Subnet> subnets;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) subnets.emplace_back(word);
  return subnets;
}

Interface::Kind kind_of_interface(const std::string& name) {
  const std::filesystem::path folder = "/sys/class/net/" + name;
  std::error_code ignored;
  if (std::filesystem::exists(folder / "device", ignored)) return Interface::Kind::kNic;
  return std::filesystem::exists(folder / "bridge", ignored) ? Interface::Kind::kBridge
                                                             : Interface::Kind::kOther;
}

}  // namespace

std::vector<Interface> own_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0)
    throw std::system_error(errno, std::generic_category(), "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
    if (i->ifa_addr == nullptr || (i->ifa_flags & kUp) != kUp) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string device = std::string("/sys/class/net/") + i->ifa_name + "/device";
    all.push_back({i->ifa_name, sockets::text_of_address(i->ifa_addr),
                   net::numa_node_in(device + "/numa_node"), kind_of_interface(i->ifa_name)});
  }
  return all;
}

void check_subnets(const std::string& text) { subnets_in(text); }

std::vector<Interface> interfaces_in(const std::string& subnets,
                                     const std::vector<Interface>& all) {
  std::vector<Interface> found;
  for (const Subnet& subnet : subnets_in(subnets)) {
    auto best = Interface::Kind::kBridge;
    for (const Interface& one : all)
      if (subnet.holds(one.address)) best = std::max(best, one.kind);
    for (const Interface& one : all) {
      const auto is_one = [&](const Interface& other) { return other.name == one.name; };
      if (subnet.holds(one.address) && one.kind == best &&
          std::none_of(found.begin(), found.end(), is_one))
        found.push_back(one);
    }
  }
  if (!found.empty()) return found;
  std::vector<std::string> others;
  for (const Interface& one : all) others.push_back(one.name + " " + one.address);
  throw std::runtime_error(
      fmt::format("this host has no address in {} (it has {})", subnets, fmt::join(others, ", ")));
}

const Interface& own_rail(const std::vector<Interface>& rails, std::optional<int> own_node,
                          int local_rank) {
  std::vector<std::optional<int>> nodes;
  for (const Interface& rail : rails) nodes.push_back(rail.node);
  return rails[net::nearest_nic(nodes, own_node, local_rank)];
}

std::string unused_nics(const std::string& address, const std::vector<Interface>& all,
                        const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // a folder that is not there has nothing in it
  std::vector<std::string> unused;
  for (const auto& nic : fs::directory_iterator(root + "/sys/class/infiniband", ignored))
    for (const auto& net : fs::directory_iterator(nic.path() / "device/net", ignored)) {
      const auto is_its = [&](const Interface& one) { return one.name == net.path().filename(); };
      const auto first = std::find_if(all.begin(), all.end(), is_its);
      const bool is_taken = std::any_of(all.begin(), all.end(), [&](const Interface& one) {
        return is_its(one) && one.address == address;
      });
      if (first != all.end() && !is_taken)
        unused.push_back(
            fmt::format("{} ({} {})", nic.path().filename().string(), first->name, first->address));
    }
  if (unused.empty()) return "";
  std::sort(unused.begin(), unused.end());
  return fmt::format(
      "InfiniBand or RoCE cards are not used, because they do not have the address {}: {}; to use "
      "them, "
      "set {} to their network",
      address, fmt::join(unused, ", "), env::kFabricSubnet);
}

}  // namespace smp::bootstrap
