#include "smp/runtime/training/product_speeds.h"

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "kernels/product_race.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/env/environment_reader.h"

namespace smp::training {
namespace {

using program::SizedProduct;
using runinfo::ProductTimes;

const ProductTimes* times_of(const std::vector<ProductTimes>& times, const SizedProduct& product) {
  const auto found = std::find_if(times.begin(), times.end(),
                                  [&](const ProductTimes& one) { return one.product == product; });
  return found == times.end() ? nullptr : &*found;
}

std::vector<ProductTimes> read_times(const std::string& path, const system::HostKey& key) {
  if (path.empty()) return {};
  std::string note;
  const auto stored = system::read_stored(path, key, note);
  if (!stored) return {};
  try {
    return runinfo::read_product_times(stored->lines);
  } catch (const ConfigError&) {
    return {};
  }
}

void store_times(const std::string& path, const system::HostKey& key,
                 const std::vector<ProductTimes>& times) {
  if (path.empty()) return;
  try {
    system::store(path, key, {system::today(), runinfo::lines_of(times)});
  } catch (const std::runtime_error&) {  // the next run measures again
  }
}

}  // namespace

std::optional<kernels::ProductLibrary> read_cpu_products() {
  const std::string text = env::optional(env::kCpuProducts);
  if (text.empty()) return std::nullopt;
  if (text == "onednn") return kernels::ProductLibrary::kOnednn;
  if (text == "torch") return kernels::ProductLibrary::kTorch;
  throw ConfigError(fmt::format("{}={}: expected onednn or torch", env::kCpuProducts, text));
}

kernels::TorchSpeeds measured_torch_speeds(int threads) {
  if (system::refuses_measuring()) return nullptr;
  system::HostKey key = system::this_host("products", fmt::format("torch-{}", TORCH_VERSION));
  key.cpus = threads;
  return stored_torch_speeds(system::cache_file(key), key,
                             [](const std::vector<SizedProduct>& products) {
                               return kernels::race_products_here(products, kernels::kRaceSeconds);
                             });
}

kernels::TorchSpeeds stored_torch_speeds(std::string path, system::HostKey key, ProductRace race) {
  return [path = std::move(path), key = std::move(key),
          race = std::move(race)](const std::vector<SizedProduct>& products) {
    std::vector<ProductTimes> known = read_times(path, key);
    std::vector<SizedProduct> unknown;
    for (const SizedProduct& product : products) {
      const SizedProduct timed = kernels::timed_for(product, static_cast<int>(key.cpus));
      if (times_of(known, timed) == nullptr &&
          std::find(unknown.begin(), unknown.end(), timed) == unknown.end())
        unknown.push_back(timed);
    }
    if (!unknown.empty()) {
      const std::vector<ProductTimes> found = race(unknown);
      known.insert(known.end(), found.begin(), found.end());
      if (!found.empty()) store_times(path, key, known);
    }
    std::vector<double> speeds;
    for (const SizedProduct& product : products) {
      const ProductTimes* times =
          times_of(known, kernels::timed_for(product, static_cast<int>(key.cpus)));
      speeds.push_back(times == nullptr ? 0 : times->torch_speed());
    }
    return speeds;
  };
}

}  // namespace smp::training
