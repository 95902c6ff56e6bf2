// Stands for NVIDIA's libnvidia-ml.so.1 in tests, which have no GPU: two of them, the first busy
// with the process whose number stands in the file FAKE_NVML_PID.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

std::atomic<bool> hangs{false};

}  // namespace

extern "C" {

// As on a GPU that has failed, until it is told otherwise.
void fake_nvml_hang(bool hang) { hangs = hang; }

int nvmlInit_v2() {
  while (hangs) usleep(1000);
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  static int devices[2];
  *device = &devices[index];
  devices[index] = static_cast<int>(index);
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  rates[0] = *static_cast<int*>(device) == 0 ? 93 : 0;
  rates[1] = 40;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 100'000'000'000;
  memory[1] = 40'000'000'000;
  memory[2] = 60'000'000'000;
  return 0;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 412'500;
  return *static_cast<int*>(device) == 0 ? 0 : 3;  // NVML_ERROR_NOT_SUPPORTED
}

// FAKE_NVML_ECC: of the second.
int nvmlDeviceGetTotalEccErrors(void* device, int, int, unsigned long long* count) {
  const char* errors = std::getenv("FAKE_NVML_ECC");
  *count =
      errors != nullptr && *static_cast<int*>(device) == 1 ? std::strtoull(errors, nullptr, 10) : 0;
  return 0;
}

struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* infos) {
  *count = 0;
  const char* path = std::getenv("FAKE_NVML_PID");
  std::FILE* file = path != nullptr ? std::fopen(path, "r") : nullptr;
  if (file == nullptr || *static_cast<int*>(device) != 0) return 0;
  unsigned pid = 0;
  if (std::fscanf(file, "%u", &pid) == 1) {
    *count = 1;
    infos[0] = {pid, 59'000'000'000, 0, 0};
  }
  std::fclose(file);
  return 0;
}
}
