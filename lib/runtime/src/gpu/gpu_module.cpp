#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "gpu/gpu.h"
#include "smp/plan/base/errors.h"

namespace smp::gpu {
namespace {

std::string beside_this_program() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "libsmp_cuda.so").string();
}

// A symbol of the module, cast to its declared type.
template <typename Function>
Function* symbol(void* module, const char* name, const std::string& path) {
  void* const found = ::dlsym(module, name);
  if (found == nullptr) {
    throw ConfigError(
        fmt::format("{}: expected libsmp_cuda.so, but the function {} is missing", path, name));
  }
  return reinterpret_cast<Function*>(found);
}

// Loads the module and never closes it, because torch's kernels stay registered.
void* load(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    throw ConfigError(
        fmt::format("cluster.device is cuda, but {} does not exist: build libsmp_cuda.so where "
                    "nvcc and libtorch_cuda.so are (scripts/setup --cuda, then cmake "
                    "-DSMP_CUDA=ON), or set SMP_CUDA_MODULE to its path",
                    path));
  }
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    throw ConfigError(
        fmt::format("cluster.device is cuda, but {} cannot be loaded: {} (scripts/setup --cuda "
                    "installs torch with all of NVIDIA's libraries)",
                    path, ::dlerror()));
  }
  return module;
}

std::shared_ptr<Gpu> open(const std::string& path, const GpuRequest& request) {
  void* const module = load(path);
  const std::string theirs =
      symbol<decltype(smp_cuda_interface)>(module, "smp_cuda_interface", path)();
  if (theirs != SMP_CUDA_INTERFACE) {
    throw ConfigError(fmt::format(
        "{} has interface {}, but this program expects {}: build both from the same source", path,
        theirs, SMP_CUDA_INTERFACE));
  }
  std::string error;
  std::shared_ptr<Gpu> gpu(
      symbol<decltype(smp_cuda_open)>(module, "smp_cuda_open", path)(request, error));
  if (gpu == nullptr) {
    throw ConfigError(fmt::format("cluster.device is cuda, but no GPU can be used: {}", error));
  }
  kernels::set_functions(gpu->device().type(), &gpu->functions());
  return gpu;
}

}  // namespace

GpuLoader cuda_module_loader(const std::string& path) {
  return [path = path.empty() ? beside_this_program() : path](const GpuRequest& request) {
    return open(path, request);
  };
}

}  // namespace smp::gpu
