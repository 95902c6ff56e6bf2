#include "kernels/device_functions.h"

#include <array>
#include <atomic>
#include <numeric>

#include "kernels/cpu_functions.h"
#include "smp/plan/base/check.h"

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

int64_t count_square_sums(const DeviceFunctions& device, const std::vector<FlatRange>& ranges) {
  int64_t count = 1;
  for (const FlatRange& range : ranges) count += device.count_square_sums(range);
  return count;
}

std::vector<double> sums_of_ranges(const DeviceFunctions& device,
                                   const std::vector<FlatRange>& ranges, const double* sums) {
  std::vector<double> result;
  for (const FlatRange& range : ranges) {
    const int64_t count = device.count_square_sums(range);
    result.push_back(std::accumulate(sums, sums + count, 0.0));
    sums += count;
  }
  result.push_back(*sums);
  return result;
}

}  // namespace smp::kernels
