#include "smp/launcher/local/binding.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "scratch_folder.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::local;

namespace {

// Of a machine that hwloc makes up; nothing where there is no hwloc.
CpuTopology synthetic(const char* description, const std::string& root = "/nowhere") {
  setenv("HWLOC_SYNTHETIC", description, 1);
  CpuTopology topology;
  try {
    topology = own_topology(root);
  } catch (const ConfigError& error) {
    MESSAGE("skipped: " << error.what());
  }
  unsetenv("HWLOC_SYNTHETIC");
  return topology;
}

std::string bound(const CpuTopology& topology, Binding binding, int ranks,
                  const std::vector<int>& gpus = {}) {
  std::string text;
  for (const BoundRank& rank : bindings_of(topology, binding, ranks, gpus)) {
    if (!text.empty()) text += " | ";
    text += text_of_cpus(rank.cpus);
    if (!rank.next_to.empty()) text += " " + rank.next_to;
  }
  return text;
}

}  // namespace

TEST_CASE("ranks are bound to nodes and cores of made-up machines") {
  const CpuTopology two = synthetic("pack:2 numa:1 core:4 pu:2");
  if (two.nodes.empty()) return;
  CHECK(text_of_topology(two) == "0:0,1;2,3;4,5;6,7|1:8,9;10,11;12,13;14,15");
  CHECK(bound(two, Binding::kNuma, 1) == "0-15");
  CHECK(bound(two, Binding::kNuma, 2) == "0-7 | 8-15");
  CHECK(bound(two, Binding::kNuma, 3) == "0-7 | 0-7 | 8-15");
  CHECK(bound(two, Binding::kNuma, 4) == "0-7 | 0-7 | 8-15 | 8-15");
  CHECK(bound(two, Binding::kCore, 2) == "0-7 | 8-15");
  CHECK(bound(two, Binding::kCore, 3) == "0-3 | 4-9 | 10-15");
  CHECK(bound(two, Binding::kCore, 8) == "0-1 | 2-3 | 4-5 | 6-7 | 8-9 | 10-11 | 12-13 | 14-15");
  CHECK_THROWS_WITH_AS(bound(two, Binding::kCore, 9),
                       "--bind core: 9 ranks, but 8 cores: start fewer ranks, or use --bind numa",
                       ConfigError);
  for (const BoundRank& rank : bindings_of(two, Binding::kNone, 2, {})) CHECK(rank.cpus.empty());
  CHECK(cores_among(two, {0, 1, 2}) == 2);

  const CpuTopology four = synthetic("pack:1 numa:4 core:1 pu:1");
  CHECK(bound(four, Binding::kNuma, 2) == "0-1 | 2-3");
  CHECK(bound(four, Binding::kNuma, 8) == "0 | 0 | 1 | 1 | 2 | 2 | 3 | 3");
}

TEST_CASE("a rank is bound to the node of its GPU") {
  const ScratchFolder folder;
  int node = 1;
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"}) {
    std::filesystem::create_directories(folder / ("proc/driver/nvidia/gpus/" + std::string(gpu)));
    std::filesystem::create_directories(folder / ("sys/bus/pci/devices/" + std::string(gpu)));
    std::ofstream(folder / ("sys/bus/pci/devices/" + std::string(gpu) + "/numa_node")) << node--;
  }
  const CpuTopology two = synthetic("pack:2 numa:1 core:2 pu:1", folder.path());
  if (two.nodes.empty()) return;
  CHECK(two.gpu_nodes == std::vector<int>{1, 0, -1});
  CHECK(bound(two, Binding::kNuma, 2) == "2-3 GPU 0 | 0-1 GPU 1");
  CHECK(bound(two, Binding::kNuma, 2, {1, 0}) == "0-1 GPU 1 | 2-3 GPU 0");
  CHECK(bound(two, Binding::kNuma, 3) ==
        "2-3 GPU 0 | 0-1 GPU 1 | 2-3");  // the third is not known: in order
  CHECK(text_of_topology(two) == "0:0;1|1:2;3 gpus 1 0 -1");
}

TEST_CASE("a rank is bound to the node of its network card") {
  const ScratchFolder folder;
  const std::string sys = folder / "sys";
  const auto card = [&](const std::string& kind, const std::string& name,
                        const std::string& address, const std::string& node,
                        const std::string& state) {
    const std::string device = sys + "/devices/" + address;
    std::filesystem::create_directories(device);
    if (!node.empty()) std::ofstream(device + "/numa_node") << node;
    const std::string path = sys + "/class/" + kind + "/" + name;
    std::filesystem::create_directories(path);
    std::filesystem::create_directory_symlink(device, path + "/device");
    if (!state.empty()) std::ofstream(path + "/operstate") << state;
  };
  std::filesystem::create_directories(sys + "/class/net/lo");  // no device
  card("net", "eth0", "0000:03:00.0", "1", "up");
  card("net", "eth1", "0000:01:00.0", "0", "down");
  card("net", "eth2", "0000:02:00.0", "", "up");
  card("net", "eth3", "0000:04:00.0/virtio0", "", "up");
  std::ofstream(sys + "/devices/0000:04:00.0/numa_node") << 0;
  const CpuTopology plain = synthetic("pack:2 numa:1 core:2 pu:1", folder.path());
  if (plain.nodes.empty()) return;
  CHECK(text_of_topology(plain) == "0:0;1|1:2;3 cards eth2=-1 eth0=1 eth3=0");
  CHECK(bound(plain, Binding::kNic, 3) == "2-3 card eth0 | 0-1 card eth3 | 2-3 card eth0");
  CHECK(bound(plain, Binding::kNuma, 2) == "0-1 | 2-3");

  card("infiniband", "mlx5_1", "0000:81:00.0", "1", "");
  card("infiniband", "mlx5_0", "0000:82:00.0", "0", "");
  const CpuTopology rdma = synthetic("pack:2 numa:1 core:2 pu:1", folder.path());
  CHECK(rdma.cards == std::vector<CpuTopology::Card>{{"mlx5_1", 1}, {"mlx5_0", 0}});
  CHECK(bound(rdma, Binding::kNic, 3) == "2-3 card mlx5_1 | 0-1 card mlx5_0 | 2-3 card mlx5_1");
  CHECK_THROWS_WITH_AS(bound(parse_topology("0:0;1 cards eth0=-1"), Binding::kNic, 1),
                       "--bind nic: the kernel knows the memory node of no network card of this "
                       "host: use --bind numa",
                       ConfigError);
}

TEST_CASE("a topology comes out of its text as it went in") {
  for (const char* text :
       {"0:0", "0:0,2;1,3|1:4,6;5,7", "3:9 gpus 1 0 -1", "3:9 gpus 0 cards eth0=1 a=b=-1"})
    CHECK(text_of_topology(parse_topology(text)) == text);
  for (const char* text : {"", "0", "0:", "0:1;", "0:1|", "0:1x", "0:1 gpus x", "0:1 cards x",
                           "0:1 cards eth0=", "0:1 cards eth0=1x"})
    CHECK_THROWS_WITH_AS(parse_topology(text), "the agent sent an unreadable CPU topology",
                         ConfigError);
  CHECK_THROWS_WITH_AS(parse_binding("socket"), "--bind 'socket': expected numa, core, nic or none",
                       ConfigError);
}
