#include "smp/rendezvous/sockets/host_identity.h"

#include <unistd.h>

#include <fstream>
#include <stdexcept>

namespace smp::sockets {

// In a network namespace the abstract names of sockets are valid.
std::string own_host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = {};
  if (boot.empty() || readlink("/proc/self/ns/net", space, sizeof(space) - 1) < 0)
    throw std::runtime_error("cannot identify this host: /proc is not mounted");
  return boot + " " + space;
}

}  // namespace smp::sockets
