#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "smp/plan/program/matrix_products.h"

// fp32 products on CPUs are oneDNN's or torch's own (MKL's, where torch was built with it). Which
// is faster depends on the CPU and on the matrix. Pure; any thread.
namespace smp::kernels {

enum class ProductLibrary : uint8_t { kOnednn, kTorch };

// How many times as fast as oneDNN torch's own library is, for each of the products; 0: not known.
using TorchSpeeds = std::function<std::vector<double>(const std::vector<program::SizedProduct>&)>;

}  // namespace smp::kernels
