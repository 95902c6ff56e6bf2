#pragma once

#include <string>
#include <vector>

namespace smp::hosts {

// One host of a job, as users write it down.
struct HostSpec {
  std::string name;       // a name or an address, as ssh takes it
  std::string user;       // empty: whoever ssh takes
  int port = 0;           // 0: ssh's own choice
  int slots = 0;          // ranks that it takes; 0: not said
  std::vector<int> gpus;  // empty: not said
};

constexpr int kMostSlots = 4096;     // ranks of one host
constexpr int kMostHosts = 1 << 17;  // that a text may name

}  // namespace smp::hosts
