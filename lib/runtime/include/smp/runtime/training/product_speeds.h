#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/runinfo/product_times.h"
#include "smp/plan/system/host_cache.h"
#include "smp/runtime/kernels/product_libraries.h"

// How fast both libraries of fp32 products are on this host: measured where a run first needs it,
// and stored in the user's cache, so that later runs choose alike.
namespace smp::training {

// The library that SMP_CPU_PRODUCTS names for all products; nothing if it is not set. Throws
// ConfigError: "SMP_CPU_PRODUCTS=mkl: expected onednn or torch".
std::optional<kernels::ProductLibrary> read_cpu_products();

// Measures with so many threads of torch, of the thread that asks, in less than 0.1 s. Null where
// the user wants nothing measured.
kernels::TorchSpeeds measured_torch_speeds(int threads);

// Times products, those that there is time for.
using ProductRace =
    std::function<std::vector<runinfo::ProductTimes>(const std::vector<program::SizedProduct>&)>;

// Speeds from the file, and from a race of those products that it does not have, which it gets. A
// file that cannot be read is made anew, and none that cannot be written is missed. `path` may be
// "": nothing is stored. The key's CPUs are the threads.
kernels::TorchSpeeds stored_torch_speeds(std::string path, system::HostKey key, ProductRace race);

}  // namespace smp::training
