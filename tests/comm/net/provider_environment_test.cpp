#include "net/provider_environment.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "comm/processes.h"
#include "scratch_folder.h"

using namespace smp;
using namespace smp::net;
using namespace smp::testing;

namespace {

// What libfabric's providers find afterwards, in a process of its own.
std::string prepared(const std::string& root, const char* shm_transfer) {
  Child child([&] {
    for (const char* name : {"FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE", "FI_EFA_ENABLE_SHM_TRANSFER"})
      unsetenv(name);
    if (shm_transfer != nullptr) setenv("FI_EFA_ENABLE_SHM_TRANSFER", shm_transfer, 1);
    prepare_providers(root);
    const auto text = [](const char* name) {
      const char* value = std::getenv(name);
      return value == nullptr ? "none" : value;
    };
    return fmt::format("EFA {}, libibverbs {}, shm {}", text("FI_EFA_FORK_SAFE"),
                       text("RDMAV_FORK_SAFE"), text("FI_EFA_ENABLE_SHM_TRANSFER"));
  });
  return child.join().said;
}

}  // namespace

TEST_CASE("providers are asked for forks, each in its way, and for no files in /dev/shm") {
  const ScratchFolder folder;
  const std::string root = folder.path();
  CHECK(prepared(root, nullptr) == "EFA 1, libibverbs 1, shm 0");
  CHECK(prepared(root, "1") == "EFA 1, libibverbs 1, shm 1");  // the user's
  std::filesystem::create_directories(root + "/sys/bus/pci/drivers/efa");
  CHECK(prepared(root, nullptr) == "EFA 1, libibverbs none, shm 0");
}
