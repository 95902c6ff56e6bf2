#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace smp::net {

// What a file of sysfs says ("numa_node" of a device); none where it is not told.
std::optional<int> numa_node_in(const std::string& file);

// The NUMA node of a PCI device ("0000:10:1b.0"), by sysfs below `root`; none where it is not told.
std::optional<int> numa_node_of_device(const std::string& pci_address,
                                       const std::string& root = "");

// The NUMA node of all CPUs that this process may use; none where they are of several, or sysfs
// does not tell.
std::optional<int> own_numa_node(const std::string& root = "");

// Which of several network cards the rank takes, whose NUMA nodes these are: one of its own node,
// where there is one, else any; the ranks of a host take turns. So rank i of a host and rank i of
// one that is alike, which talk to each other, take the same.
size_t nearest_card(const std::vector<std::optional<int>>& cards, std::optional<int> own_node,
                    int local_rank);

}  // namespace smp::net
