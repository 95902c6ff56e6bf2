#pragma once

#include <string>
#include <string_view>
#include <vector>

// Which CPUs the ranks of a host run on. Pure functions but for own_topology(); any thread.
namespace smp::local {

// The CPUs of a host that this process may run on, as hwloc finds them.
struct CpuTopology {
  struct Node {                           // of memory (NUMA)
    int number = 0;                       // the kernel's
    std::vector<std::vector<int>> cores;  // the CPUs (hardware threads) of each
  };
  std::vector<Node> nodes;
  std::vector<int> gpu_nodes;  // the node next to each GPU, by the kernel's number; -1: not known
  struct Card {                // of a network
    std::string name;
    int node = -1;
    bool operator==(const Card&) const = default;
  };
  std::vector<Card> cards;  // in the order of their PCI addresses
};

// `root` stands before /proc and /sys where GPUs and cards are looked for, for tests. Throws
// ConfigError where there is no libhwloc.
CpuTopology own_topology(const std::string& root = "");

enum class Binding {
  kNone,
  kNuma,  // to the CPUs of a node: that of its GPU, else nodes are shared out in order
  kCore,  // to cores of its own, in the order of the nodes
  kNic,   // to the CPUs of the node next to its network card: ranks take turns at those known
};
Binding parse_binding(std::string_view text);  // throws ConfigError

// Of one rank.
struct BoundRank {
  std::vector<int> cpus;  // ascending; none: not bound
  std::string next_to;    // "GPU 1", "card mlx5_0": what the node was chosen for; empty: nothing
};
// By local rank. `gpus`: those that the ranks are to use (empty: all, in order). Throws ConfigError
// when there are fewer cores than ranks, or no card whose node is known.
std::vector<BoundRank> bindings_of(const CpuTopology& topology, Binding binding, int ranks,
                                   const std::vector<int>& gpus);

// How many of the topology's cores have one of these CPUs.
int cores_among(const CpuTopology& topology, const std::vector<int>& cpus);

// "0-3,8".
std::string text_of_cpus(const std::vector<int>& cpus);

// As one text, for messages: "0:0,2;1,3|1:4,6;5,7 gpus 0 1 cards eth0=1 eth1=-1". The second
// throws ConfigError.
std::string text_of_topology(const CpuTopology& topology);
CpuTopology parse_topology(std::string_view text);

}  // namespace smp::local
