#include <dlfcn.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include "smp/launcher/local/binding.h"
#include "smp/plan/base/errors.h"

// libhwloc is loaded only if ranks are bound, so that hosts without it can run unbound ranks.
// libhwloc reads HWLOC_SYNTHETIC and HWLOC_XMLFILE, if set, instead of this machine.

namespace smp::local {
namespace {

class Hwloc {
 public:
  Hwloc() : library_(dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL), &close_library) {
    if (!library_)
      throw ConfigError(
          "--bind needs hwloc, but libhwloc.so.15 is not installed: install libhwloc15, or leave "
          "--bind out");
    find(init, "hwloc_topology_init");
    find(load, "hwloc_topology_load");
    find(destroy, "hwloc_topology_destroy");
    find(depth, "hwloc_get_type_depth");
    find(object, "hwloc_get_obj_by_depth");
    find(count, "hwloc_get_nbobjs_by_depth");
    find(next, "hwloc_bitmap_next");
    find(is_set, "hwloc_bitmap_isset");
    find(is_this_system, "hwloc_topology_is_thissystem");
  }

  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_get_type_depth) depth = nullptr;
  decltype(&hwloc_get_obj_by_depth) object = nullptr;
  decltype(&hwloc_get_nbobjs_by_depth) count = nullptr;
  decltype(&hwloc_bitmap_next) next = nullptr;
  decltype(&hwloc_bitmap_isset) is_set = nullptr;
  decltype(&hwloc_topology_is_thissystem) is_this_system = nullptr;

 private:
  static void close_library(void* library) {
    if (library != nullptr) dlclose(library);
  }
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_.get(), name));
    if (function == nullptr)
      throw ConfigError("libhwloc.so.15 lacks a function of hwloc 2: install libhwloc15 again");
  }

  std::unique_ptr<void, void (*)(void*)> library_;
};

// The CPUs that the kernel allows to this process. A synthetic topology has all its CPUs.
bool may_run_on(bool this_system, const cpu_set_t& mine, int cpu) {
  return !this_system || (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &mine));
}

std::vector<std::vector<int>> cores_of(const Hwloc& hwloc, hwloc_topology_t topology,
                                       hwloc_const_cpuset_t node, const cpu_set_t& mine) {
  std::vector<std::vector<int>> cores;
  const bool this_system = hwloc.is_this_system(topology) != 0;
  const int depth = hwloc.depth(topology, HWLOC_OBJ_CORE);
  const unsigned count = depth < 0 ? 0 : hwloc.count(topology, depth);
  for (unsigned i = 0; i < count; ++i) {
    const hwloc_obj_t core = hwloc.object(topology, depth, i);
    std::vector<int> cpus;
    for (int cpu = hwloc.next(core->cpuset, -1); cpu >= 0; cpu = hwloc.next(core->cpuset, cpu)) {
      if (hwloc.is_set(node, static_cast<unsigned>(cpu)) != 0 && may_run_on(this_system, mine, cpu))
        cpus.push_back(cpu);
    }
    if (!cpus.empty()) cores.push_back(std::move(cpus));
  }
  return cores;
}

// In the order of CUDA_DEVICE_ORDER=PCI_BUS_ID.
std::vector<int> nodes_of_gpus(const std::string& root) {
  std::vector<std::string> gpus;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "/proc/driver/nvidia/gpus", error))
    gpus.push_back(entry.path().filename().string());
  std::sort(gpus.begin(), gpus.end());
  std::vector<int> nodes;
  for (const std::string& gpu : gpus) {
    std::ifstream file(root + "/sys/bus/pci/devices/" + gpu + "/numa_node");
    int node = -1;
    nodes.push_back(file >> node ? node : -1);
  }
  return nodes;
}

// RDMA cards, or without those the network cards that are up. Interfaces without a device on a bus
// are left out.
std::vector<CpuTopology::Card> cards_of(const std::string& root) {
  namespace fs = std::filesystem;
  std::map<std::pair<std::string, std::string>, CpuTopology::Card> by_address;
  for (const char* kind : {"infiniband", "net"}) {
    if (!by_address.empty()) break;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root + "/sys/class/" + kind, error)) {
      fs::path device = fs::canonical(entry.path() / "device", error);
      if (error) continue;
      // The device of a virtual card (virtio) is a child of its bus device.
      if (!fs::exists(device / "numa_node", error) &&
          fs::exists(device.parent_path() / "numa_node", error))
        device = device.parent_path();
      std::string state;
      if (std::ifstream(entry.path() / "operstate") >> state && state == "down") continue;
      int node = -1;
      if (!(std::ifstream(device / "numa_node") >> node)) node = -1;
      const std::string name = entry.path().filename().string();
      by_address[{device.filename().string(), name}] = {name, node};
    }
  }
  std::vector<CpuTopology::Card> cards;
  for (const auto& [address, card] : by_address) cards.push_back(card);
  return cards;
}

}  // namespace

CpuTopology own_topology(const std::string& root) {
  const Hwloc hwloc;
  hwloc_topology_t topology = nullptr;
  if (hwloc.init(&topology) != 0) throw ConfigError("hwloc cannot read the CPUs of this host");
  const std::unique_ptr<hwloc_topology, decltype(hwloc.destroy)> owner(topology, hwloc.destroy);
  if (hwloc.load(topology) != 0) throw ConfigError("hwloc cannot read the CPUs of this host");
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  CpuTopology found;
  const int depth = HWLOC_TYPE_DEPTH_NUMANODE;
  for (unsigned i = 0; i < hwloc.count(topology, depth); ++i) {
    const hwloc_obj_t object = hwloc.object(topology, depth, i);
    CpuTopology::Node node;
    node.number = static_cast<int>(object->os_index);
    node.cores = cores_of(hwloc, topology, object->cpuset, mine);
    if (!node.cores.empty()) found.nodes.push_back(std::move(node));
  }
  if (found.nodes.empty()) throw ConfigError("hwloc cannot read the CPUs of this host");
  found.gpu_nodes = nodes_of_gpus(root);
  found.cards = cards_of(root);
  return found;
}

}  // namespace smp::local
