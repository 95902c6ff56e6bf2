#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace smp::net {

// The NUMA node in a file of sysfs ("numa_node" of a device); none if the file has no node.
std::optional<int> numa_node_in(const std::string& file);

// The NUMA node of a PCI device ("0000:10:1b.0"), from sysfs below `root`; none if unknown.
std::optional<int> numa_node_of_device(const std::string& pci_address,
                                       const std::string& root = "");

// The NUMA node of all CPUs that this process may use; none if they belong to several, or if sysfs
// does not tell.
std::optional<int> own_numa_node(const std::string& root = "");

// Chooses the network card (NIC) of a rank. `nics` are the NUMA nodes of the cards. The choice is a
// card of the rank's own node, if there is one, else any; the ranks of a host take turns. So rank i
// of one host and rank i of an equal host, which talk to each other, choose the same card.
size_t nearest_nic(const std::vector<std::optional<int>>& nics, std::optional<int> own_node,
                   int local_rank);

}  // namespace smp::net
