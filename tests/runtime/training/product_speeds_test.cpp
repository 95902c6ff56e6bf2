#include "smp/runtime/training/product_speeds.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "files_and_errors.h"
#include "kernels/product_race.h"
#include "scratch_folder.h"

using namespace smp;
using namespace smp::training;
using program::ProductKind;
using program::SizedProduct;

namespace {

const system::HostKey kKey{"products", "AMD EPYC", 2, "torch-2.11.0", ""};
// Two of one size when they are timed, and one of another.
const std::vector<SizedProduct> kProducts = {{{ProductKind::kForward, 768, 64}, 16},
                                             {{ProductKind::kForward, 1024, 64}, 16},
                                             {{ProductKind::kWeightGradient, 32, 64}, 16}};

// Torch is twice as fast in forward products, half as fast in others. Counts what it is asked.
struct CountingRace {
  int* asked;
  size_t most = 99;

  std::vector<runinfo::ProductTimes> operator()(const std::vector<SizedProduct>& products) const {
    std::vector<runinfo::ProductTimes> times;
    for (const SizedProduct& product : products) {
      ++*asked;
      const bool is_forward = product.matrix.kind == ProductKind::kForward;
      if (times.size() < most) times.push_back({product, 0.001, is_forward ? 0.0005 : 0.002});
    }
    return times;
  }
};

const std::vector<double> kSpeeds = {2, 2, 0.5};

}  // namespace

TEST_CASE("speeds are measured once, for products that are alike together, and stored") {
  const ScratchFolder folder;
  const std::string path = folder / "smp/products.json";
  int asked = 0;
  CHECK(stored_torch_speeds(path, kKey, CountingRace{&asked})(kProducts) == kSpeeds);
  CHECK(asked == 2);
  CHECK(stored_torch_speeds(path, kKey, CountingRace{&asked})(kProducts) == kSpeeds);
  CHECK(asked == 2);
  // Another job's products are added to the file.
  const std::vector<SizedProduct> more = {kProducts[0], {{ProductKind::kInputGradient, 5, 7}, 16}};
  CHECK(stored_torch_speeds(path, kKey, CountingRace{&asked})(more) == std::vector<double>{2, 0.5});
  CHECK(asked == 3);
  CHECK(stored_torch_speeds(path, kKey, CountingRace{&asked})(kProducts) == kSpeeds);
  CHECK(asked == 3);
}

TEST_CASE("speeds of another host, or in a file that is cut, are measured anew") {
  const ScratchFolder folder;
  const std::string path = folder / "products.json";
  int asked = 0;
  const auto speeds_of = [&](const system::HostKey& key) {
    asked = 0;
    return stored_torch_speeds(path, key, CountingRace{&asked})(kProducts);
  };
  CHECK(speeds_of(kKey) == kSpeeds);
  const std::string whole = text_of(path);
  for (const size_t bytes : {size_t{0}, size_t{20}, whole.find('\n') + 30, whole.size() - 10}) {
    std::ofstream(path, std::ios::trunc) << whole.substr(0, bytes);
    CHECK(speeds_of(kKey) == kSpeeds);
    CHECK(asked == 2);
    CHECK(text_of(path) == whole);
  }
  system::HostKey other = kKey;
  other.cpu = "Intel";
  CHECK(speeds_of(other) == kSpeeds);
  CHECK(asked == 2);
}

TEST_CASE("speeds that cannot be stored are measured each time") {
  const ScratchFolder folder;
  std::ofstream(folder / "file") << "no folder";
  int asked = 0;
  for (const std::string& path : {std::string(), folder / "file/products.json"}) {
    asked = 0;
    const kernels::TorchSpeeds speeds = stored_torch_speeds(path, kKey, CountingRace{&asked});
    CHECK(speeds(kProducts) == kSpeeds);
    CHECK(speeds(kProducts) == kSpeeds);
    CHECK(asked == 4);
  }
}

TEST_CASE("a product that there was no time for is not known, and measured by the next run") {
  const ScratchFolder folder;
  const std::string path = folder / "products.json";
  int asked = 0;
  CHECK(stored_torch_speeds(path, kKey, CountingRace{&asked, 0})(kProducts) ==
        std::vector<double>{0, 0, 0});
  CHECK(!std::filesystem::exists(path));
  CHECK(stored_torch_speeds(path, kKey, CountingRace{&asked, 1})(kProducts) ==
        std::vector<double>{2, 2, 0});
  asked = 0;
  CHECK(stored_torch_speeds(path, kKey, CountingRace{&asked})(kProducts) == kSpeeds);
  CHECK(asked == 1);
}

TEST_CASE("SMP_CPU_PRODUCTS names one of the libraries, and SMP_NO_MEASURE leaves all to oneDNN") {
  const auto with = [](const char* value) {
    ::setenv("SMP_CPU_PRODUCTS", value, 1);
    return error_of([] { read_cpu_products(); });
  };
  for (const std::string text : {"mkl", "oneDNN", "torch ", "1"})
    CHECK(with(text.c_str()) == "SMP_CPU_PRODUCTS=" + text + ": expected onednn or torch");
  CHECK(with("torch") == "no error");
  CHECK(*read_cpu_products() == kernels::ProductLibrary::kTorch);
  CHECK(with("onednn") == "no error");
  CHECK(*read_cpu_products() == kernels::ProductLibrary::kOnednn);
  ::unsetenv("SMP_CPU_PRODUCTS");
  CHECK(!read_cpu_products());
  ::setenv("SMP_NO_MEASURE", "1", 1);
  CHECK(!measured_torch_speeds(1));
  ::setenv("SMP_NO_MEASURE", "0", 1);
  CHECK(measured_torch_speeds(1));
  ::unsetenv("SMP_NO_MEASURE");
}
