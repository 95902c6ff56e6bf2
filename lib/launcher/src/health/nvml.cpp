#include "health/nvml.h"

#include <dlfcn.h>

#include <type_traits>

namespace smp::health {
namespace {

constexpr int kTooSmall = 7;  // NVML_ERROR_INSUFFICIENT_SIZE

}  // namespace

bool Nvml::load() {
  // Stays loaded: a library that has started threads is not to be unloaded.
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  return find(init, "nvmlInit_v2") && find(count, "nvmlDeviceGetCount_v2") &&
         find(device, "nvmlDeviceGetHandleByIndex_v2") &&
         find(utilization, "nvmlDeviceGetUtilizationRates") &&
         find(memory, "nvmlDeviceGetMemoryInfo") && find(power, "nvmlDeviceGetPowerUsage") &&
         find(processes, "nvmlDeviceGetComputeRunningProcesses_v3") &&
         find(ecc_errors, "nvmlDeviceGetTotalEccErrors");
}

std::vector<GpuProcess> processes_on(const Nvml& nvml, Nvml::Device device) {
  std::vector<Nvml::ProcessInfo> infos(32);
  auto count = static_cast<unsigned>(infos.size());
  int result = nvml.processes(device, &count, infos.data());
  if (result == kTooSmall) {
    infos.resize(count + 16);  // more may come meanwhile
    count = static_cast<unsigned>(infos.size());
    result = nvml.processes(device, &count, infos.data());
  }
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; result == Nvml::kSuccess && i < count; ++i)
    processes.push_back({static_cast<pid_t>(infos[i].pid),
                         infos[i].memory == ~0ULL ? 0 : static_cast<int64_t>(infos[i].memory)});
  return processes;
}

}  // namespace smp::health
