#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "gpu/gpu.h"
#include "smp/plan/base/errors.h"

// The GPU of this machine, by the module beside this program. What has none is skipped, which ctest
// knows by these words.
namespace smp::test {

inline std::shared_ptr<gpu::Gpu> open_a_gpu() {
  try {
    return gpu::cuda_module_loader("")({});
  } catch (const ConfigError& none) {
    std::printf("skipped, no GPU: %s\n", none.what());
    return nullptr;
  }
}

}  // namespace smp::test
