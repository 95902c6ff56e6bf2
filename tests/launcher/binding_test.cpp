#include "smp/launcher/binding.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "scratch_folder.h"
#include "smp/plan/errors.h"

using namespace smp;

namespace {

// Of a machine that hwloc makes up; nothing where there is no hwloc.
CpuTopology synthetic(const char* description, const std::string& root = {}) {
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
  for (const std::vector<int>& cpus : bindings_of(topology, binding, ranks, gpus)) {
    if (!text.empty()) text += " | ";
    text += text_of_cpus(cpus);
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
                       "--bind core: 9 ranks, but 8 cores: fewer ranks, or --bind numa",
                       ConfigError);
  CHECK(bindings_of(two, Binding::kNone, 2, {}) == std::vector<std::vector<int>>(2));
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
  CHECK(bound(two, Binding::kNuma, 2) == "2-3 | 0-1");
  CHECK(bound(two, Binding::kNuma, 2, {1, 0}) == "0-1 | 2-3");
  CHECK(bound(two, Binding::kNuma, 3) == "2-3 | 0-1 | 2-3");  // the third is not known: in order
  CHECK(text_of_topology(two) == "0:0;1|1:2;3 gpus 1 0 -1");
}

TEST_CASE("a topology comes out of its text as it went in") {
  for (const char* text : {"0:0", "0:0,2;1,3|1:4,6;5,7", "3:9 gpus 1 0 -1"})
    CHECK(text_of_topology(parse_topology(text)) == text);
  for (const char* text : {"", "0", "0:", "0:1;", "0:1|", "0:1x", "0:1 gpus x"})
    CHECK_THROWS_WITH_AS(parse_topology(text), "a topology that is not understood", ConfigError);
  CHECK_THROWS_WITH_AS(parse_binding("socket"), "--bind 'socket': it is numa, core or none",
                       ConfigError);
}
