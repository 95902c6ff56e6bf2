#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "gpu/device_collectives.h"

namespace smp::cuda {

// Loads libnccl.so.2 for the rank's GPU. Throws std::runtime_error that names the missing library
// or function.
std::unique_ptr<gpu::DeviceCollectivesLibrary> open_nccl(c10::DeviceIndex gpu);

}  // namespace smp::cuda
