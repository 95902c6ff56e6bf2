#include "net/nearest_nic.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "scratch_folder.h"

using namespace smp;
using namespace smp::net;

namespace {

void write(const std::string& file, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  std::ofstream(file) << text << "\n";
}

}  // namespace

TEST_CASE("a rank takes a network card of its NUMA node, and the ranks of a host take turns") {
  const std::vector<std::optional<int>> four = {0, 0, 1, 1}, unknown = {{}, {}, {}};
  std::vector<size_t> taken;
  for (int rank = 0; rank < 8; ++rank) taken.push_back(nearest_nic(four, rank / 4, rank));
  CHECK(taken == std::vector<size_t>{0, 1, 0, 1, 2, 3, 2, 3});
  taken.clear();
  for (int rank = 0; rank < 5; ++rank) taken.push_back(nearest_nic(four, std::nullopt, rank));
  CHECK(taken == std::vector<size_t>{0, 1, 2, 3, 0});
  CHECK(nearest_nic(four, 2, 3) == 3);     // no card is near
  CHECK(nearest_nic(unknown, 0, 4) == 1);  // none is known to be
}

TEST_CASE("sysfs tells the NUMA nodes of cards and of this process") {
  const ScratchFolder folder;
  const std::string root = folder.path();
  CHECK_FALSE(numa_node_of_device("0000:10:1b.0", root));
  write(root + "/sys/bus/pci/devices/0000:10:1b.0/numa_node", "1");
  CHECK(numa_node_of_device("0000:10:1b.0", root) == 1);
  write(root + "/sys/bus/pci/devices/0000:10:1b.0/numa_node", "-1");  // a machine with one node
  CHECK_FALSE(numa_node_of_device("0000:10:1b.0", root));
  CHECK_FALSE(own_numa_node(root));
  write(root + "/sys/devices/system/node/node0/cpulist", "");  // memory alone
  write(root + "/sys/devices/system/node/node1/cpulist", "0-2,3,4-1023");
  CHECK(own_numa_node(root) == 1);
  write(root + "/sys/devices/system/node/node1/cpulist", "2000-2003");
  write(root + "/sys/devices/system/node/node2/cpulist", "2004,2005");
  CHECK_FALSE(own_numa_node(root));
}
