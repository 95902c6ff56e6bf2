#include "bootstrap/interfaces.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "scratch_folder.h"

using namespace smp;
using namespace smp::bootstrap;

namespace {

const std::vector<Interface> kHost = {
    {"lo", "127.0.0.1", {}, Interface::Kind::kOther},
    {"cni0", "10.244.1.1", {}, Interface::Kind::kBridge},
    {"tun0", "192.168.9.1", {}, Interface::Kind::kOther},
    {"br0", "172.17.0.1", {}, Interface::Kind::kBridge},
    {"eth0", "192.168.7.3", 0},
    {"ib0", "10.1.0.3", 0},
    {"ib1", "10.2.0.3", 1},
    {"ib1", "10.2.0.99", 1},
    {"ib2", "10.3.0.3", 1},
    {"ib2", "fd00::3", 1},
};

std::vector<std::string> names_in(const std::string& subnets) {
  std::vector<std::string> names;
  for (const Interface& one : interfaces_in(subnets, kHost))
    names.push_back(one.name + " " + one.address);
  return names;
}

}  // namespace

TEST_CASE("subnets name the interfaces that a host's ranks take by turns") {
  using Names = std::vector<std::string>;
  CHECK(names_in("192.168.0.0/16") == Names{"eth0 192.168.7.3"});
  CHECK(names_in("10.0.0.0/8") == Names{"ib0 10.1.0.3", "ib1 10.2.0.3", "ib2 10.3.0.3"});
  CHECK(names_in("10.2.0.64/26") == Names{"ib1 10.2.0.99"});
  CHECK(names_in("10.3.0.0/16,10.1.0.0/16") == Names{"ib2 10.3.0.3", "ib0 10.1.0.3"});
  CHECK(names_in("10.1.0.0/16,172.16.0.0/16") == Names{"ib0 10.1.0.3"});
  CHECK(names_in("fd00::/8") == Names{"ib2 fd00::3"});
  CHECK(names_in("0.0.0.0/0").size() == 4);  // cards
  CHECK(names_in("127.0.0.0/8") == Names{"lo 127.0.0.1"});
  CHECK(names_in("172.16.0.0/12") == Names{"br0 172.17.0.1"});
  CHECK(names_in("10.1.0.0/16,192.168.9.0/24") == Names{"ib0 10.1.0.3", "tun0 192.168.9.1"});

  const auto rails = interfaces_in("10.0.0.0/8", kHost);
  const auto rail_of = [&](std::optional<int> node, int rank) {
    return own_rail(rails, node, rank).name;
  };
  CHECK(rail_of({}, 0) == "ib0");
  CHECK(rail_of({}, 4) == "ib1");
  CHECK(rail_of(0, 5) == "ib0");
  CHECK(rail_of(1, 4) == "ib1");
  CHECK(rail_of(1, 5) == "ib2");
}

TEST_CASE(
    "a subnet that is none, or that no interface is in, is an error that says which there are") {
  for (const char* text :
       {"10.0.0.0", "10.0.0.0/33", "10.0.0.0/x", "10.0.0.0/16abc", "10.0.0.0/16 ", "eth0", "/8"}) {
    CAPTURE(text);
    try {
      names_in(text);
      CHECK(false);
    } catch (const std::runtime_error& error) {
      CHECK(error.what() == std::string("'") + text +
                                "' is not a network: expected ADDRESS/BITS, as in "
                                "10.0.0.0/16, or several separated by commas");
    }
  }
  CHECK_THROWS_WITH_AS(interfaces_in("203.0.113.0/24", {{"lo", "127.0.0.1", {}}, {"e", "::2", 1}}),
                       "this host has no address in 203.0.113.0/24 (it has lo 127.0.0.1, e ::2)",
                       std::runtime_error);
}

TEST_CASE(
    "cards for InfiniBand and RoCE that messages do not take are named, with their addresses") {
  const ScratchFolder folder;
  const std::string root = folder.path(), cards = root + "/sys/class/infiniband/";
  CHECK(unused_nics("192.168.7.3", kHost, root) == "");
  std::filesystem::create_directories(cards + "rdmap16s27");             // EFA: no interface
  std::filesystem::create_directories(cards + "mlx5_2/device/net/ib9");  // down
  CHECK(unused_nics("192.168.7.3", kHost, root) == "");
  std::filesystem::create_directories(cards + "mlx5_1/device/net/ib1");
  std::filesystem::create_directories(cards + "mlx5_0/device/net/ib0");
  CHECK(unused_nics("192.168.7.3", kHost, root) ==
        "InfiniBand or RoCE cards are not used, because they do not have the address 192.168.7.3: "
        "mlx5_0 (ib0 10.1.0.3), mlx5_1 (ib1 10.2.0.3); to use them, set SMP_FABRIC_SUBNET to their "
        "network");
  CHECK(unused_nics("10.1.0.3", kHost, root) ==
        "InfiniBand or RoCE cards are not used, because they do not have the address 10.1.0.3: "
        "mlx5_1 (ib1 10.2.0.3); to use them, set SMP_FABRIC_SUBNET to their network");
  std::filesystem::remove_all(cards + "mlx5_0");
  CHECK(unused_nics("10.2.0.99", kHost, root) == "");
}

TEST_CASE("this host's interfaces are there with their addresses") {
  const auto all = own_interfaces();
  CHECK(std::any_of(all.begin(), all.end(),
                    [](const Interface& one) { return one.address == "127.0.0.1"; }));
}
