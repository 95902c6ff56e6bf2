#include "net/provider_environment.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace smp::net {

void prepare_providers(const std::string& root) {
  const auto set = [](const char* name, const char* value) { setenv(name, value, 0); };
  // Signals are ours: providers for InfiniPath and Omni-Path would print a trace and exit with 1.
  set("IPATH_NO_BACKTRACE", "1");
  set("HFI_NO_BACKTRACE", "1");
  // Ranks may fork: a child shall not have pages that a card reads and writes copied on a write.
  // EFA's provider sees to it itself; what libibverbs does for other cards is not for EFA's.
  set("FI_EFA_FORK_SAFE", "1");
  std::error_code ignored;
  if (!std::filesystem::exists(root + "/sys/bus/pci/drivers/efa", ignored))
    set("RDMAV_FORK_SAFE", "1");
  // Ranks of a host have our own shared memory: EFA's would leave files of a killed rank in
  // /dev/shm.
  set("FI_EFA_ENABLE_SHM_TRANSFER", "0");
}

}  // namespace smp::net
