#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "gpu/device_collectives.h"

namespace smp::cuda {

// NCCL, as far as it is loaded: libnccl.so.2, for the rank's GPU. Throws std::runtime_error that
// says what is missing.
std::unique_ptr<gpu::DeviceCollectivesLibrary> open_nccl(c10::DeviceIndex gpu);

}  // namespace smp::cuda
