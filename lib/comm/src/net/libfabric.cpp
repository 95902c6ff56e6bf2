#include "net/libfabric.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

#include "net/provider_environment.h"

namespace smp::net {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw std::runtime_error(fmt::format("libfabric.so.1 has no function {}", name));
}

}  // namespace

LibFabric::LibFabric() {
  prepare_providers();
  void* library = dlopen("libfabric.so.1",
                         RTLD_NOW | RTLD_LOCAL);  // never closed, because its threads may still run
  if (library == nullptr)
    throw std::runtime_error(
        fmt::format("a job on several hosts needs libfabric (Debian: libfabric1): {}", dlerror()));
  find(library, "fi_version", version_);
  find(library, "fi_strerror", strerror_);
  find(library, "fi_getinfo", getinfo_);
  find(library, "fi_dupinfo", dupinfo_);
  find(library, "fi_freeinfo", freeinfo_);
  find(library, "fi_fabric", fabric_);
}

std::string LibFabric::version_text() const {
  return fmt::format("{}.{}", FI_MAJOR(version()), FI_MINOR(version()));
}

std::string LibFabric::text_of(int error) const { return strerror_(error < 0 ? -error : error); }

int LibFabric::getinfo(const char* node, uint64_t flags, const fi_info* hints,
                       fi_info** info) const {
  const uint32_t built = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  return getinfo_(version() < built ? version() : built, node, nullptr, flags, hints, info);
}

int LibFabric::open(fi_fabric_attr* attributes, fid_fabric** fabric) const {
  return fabric_(attributes, fabric, nullptr);
}

}  // namespace smp::net
