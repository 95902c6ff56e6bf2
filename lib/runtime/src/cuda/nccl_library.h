#pragma once

#include <memory>

#include "device_collectives.h"

namespace smp::cuda {

// NCCL, as far as it is loaded: libnccl.so.2. Throws std::runtime_error that says what is missing.
std::unique_ptr<DeviceCollectivesLibrary> open_nccl();

}  // namespace smp::cuda
