#include <array>
#include <atomic>

#include "kernels/cpu_functions.h"
#include "kernels/device_functions.h"
#include "smp/plan/base/check.h"

// The functions of each type of device.
namespace smp::kernels {
namespace {

// As torch's dispatcher, one table for the process: a tensor knows its device and nothing more.
std::array<std::atomic<const DeviceFunctions*>, 2> others{};

std::atomic<const DeviceFunctions*>& other_of(c10::DeviceType device) {
  SMP_CHECK(device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA);
  return others[static_cast<size_t>(device)];
}

}  // namespace

const DeviceFunctions& functions_of(const at::Tensor& tensor) {
  const c10::DeviceType device = tensor.device().type();
  if (const DeviceFunctions* other = other_of(device).load(std::memory_order_relaxed)) {
    return *other;
  }
  SMP_CHECK(device == c10::DeviceType::CPU);
  return cpu_functions();
}

void set_functions(c10::DeviceType device, const DeviceFunctions* functions) {
  other_of(device).store(functions, std::memory_order_relaxed);
}

}  // namespace smp::kernels
