#include "net/nearest_nic.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace smp::net {
namespace {

// "0-3,8" means 0 to 3, and 8.
bool holds_cpu(const std::string& list, int cpu) {
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream words(part);
    int first = 0, last = 0;
    char dash = 0;
    if (!(words >> first)) continue;
    if (!(words >> dash >> last)) last = first;
    if (cpu >= first && cpu <= last) return true;
  }
  return false;
}

}  // namespace

std::optional<int> numa_node_in(const std::string& path) {
  std::ifstream file(path);
  int node = -1;
  if (!(file >> node) || node < 0) return std::nullopt;
  return node;
}

std::optional<int> numa_node_of_device(const std::string& pci_address, const std::string& root) {
  return numa_node_in(root + "/sys/bus/pci/devices/" + pci_address + "/numa_node");
}

std::optional<int> own_numa_node(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::nullopt;
  for (int node = 0;; ++node) {
    const std::string folder = root + "/sys/devices/system/node/node" + std::to_string(node);
    std::error_code ignored;
    if (!std::filesystem::exists(folder, ignored)) return std::nullopt;
    std::ifstream file(folder + "/cpulist");
    std::string list;
    std::getline(file, list);
    bool all = true;
    for (int cpu = 0; cpu < CPU_SETSIZE && all; ++cpu)
      all = !CPU_ISSET(cpu, &set) || holds_cpu(list, cpu);
    if (all) return node;
  }
}

size_t nearest_nic(const std::vector<std::optional<int>>& nics, std::optional<int> own_node,
                   int local_rank) {
  std::vector<size_t> near;
  for (size_t i = 0; i < nics.size(); ++i)
    if (own_node && nics[i] == own_node) near.push_back(i);
  if (near.empty())
    for (size_t i = 0; i < nics.size(); ++i) near.push_back(i);
  return near[size_t(local_rank) % near.size()];
}

}  // namespace smp::net
