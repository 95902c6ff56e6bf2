#include "net/provider_environment.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace smp::net {

void prepare_providers(const std::string& root) {
  const auto set = [](const char* name, const char* value) { setenv(name, value, 0); };
  // smp handles the signals: providers for InfiniPath and Omni-Path would print a trace and exit
  // with 1.
  set("IPATH_NO_BACKTRACE", "1");
  set("HFI_NO_BACKTRACE", "1");
  // Ranks may fork, and pages that a card reads and writes must not be copied on a write then.
  // EFA's provider handles this itself; the setting of libibverbs is for other cards.
  set("FI_EFA_FORK_SAFE", "1");
  std::error_code ignored;
  if (!std::filesystem::exists(root + "/sys/bus/pci/drivers/efa", ignored))
    set("RDMAV_FORK_SAFE", "1");
  // Ranks of a host use our own shared memory. EFA's shared memory would leave files of a killed
  // rank in /dev/shm.
  set("FI_EFA_ENABLE_SHM_TRANSFER", "0");
}

}  // namespace smp::net
