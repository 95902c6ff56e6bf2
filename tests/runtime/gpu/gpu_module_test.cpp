#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu.h"
#include "gpu/gpu_ledger.h"
#include "runtime/short_runs.h"
#include "smp/plan/base/errors.h"
#include "smp/runtime/record/error_report.h"

// What a run says when its plan is for GPUs and it can have none: modules that are not there, or
// are of no use.
using namespace smp;
using namespace smp::comm;
using namespace smp::device;
using namespace smp::gpu;
using namespace smp::jobs;
using namespace smp::kernels;
using namespace smp::ledger;
using namespace smp::record;
using namespace smp::training;
using namespace smp::test;

namespace {

const std::string kFolder = SMP_TEST_MODULES;  // of the fake modules

std::string refusal_of(const std::string& path) {
  try {
    cuda_module_loader(path)({});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("libsmp_cuda.so: each way in which it cannot be used has its own words") {
  CHECK(refusal_of("/nowhere/libsmp_cuda.so") ==
        "cluster.device is cuda, but /nowhere/libsmp_cuda.so does not exist: build libsmp_cuda.so "
        "where nvcc and libtorch_cuda.so are (scripts/setup --cuda, then cmake -DSMP_CUDA=ON), or "
        "set SMP_CUDA_MODULE to its path");
  const std::string needs = kFolder + "/libsmp_test_needs_missing.so";
  CHECK(refusal_of(needs) ==
        fmt::format("cluster.device is cuda, but {} cannot be loaded: libsmp_test_missing.so: "
                    "cannot open shared object file: No such file or directory (scripts/setup "
                    "--cuda installs torch with all of NVIDIA's libraries)",
                    needs));
  const std::string none = kFolder + "/missing/libsmp_test_missing.so";
  CHECK(refusal_of(none) ==
        fmt::format("{}: expected libsmp_cuda.so, but the function smp_cuda_interface is missing",
                    none));
  const std::string old = kFolder + "/libsmp_test_old_module.so";
  CHECK(refusal_of(old) ==
        fmt::format(
            "{} has interface old, but this program expects {}: build both from the same source",
            old, SMP_TEST_INTERFACE));
  CHECK(refusal_of(kFolder + "/libsmp_test_no_gpu.so") ==
        "cluster.device is cuda, but no GPU can be used: no NVIDIA driver is loaded");
}

TEST_CASE("without a GPU a run ends before it trains, and all ranks blame rank 0") {
  const ShortRuns runs;
  Plan plan = runs.plan({"", {.pipeline = 2, .replica = 2}});
  plan.job.cluster.device = DeviceKind::kCuda;
  std::mutex mutex;
  std::vector<std::string> own;
  int64_t others = 0, steps = 0;
  run_ranks(4, [&](Communicator& world) {
    TrainOptions options = options_of("", 2);
    options.open_gpu = cuda_module_loader(kFolder + "/libsmp_test_no_gpu.so");
    options.on_step = [&](const StepMetrics&) { ++steps; };
    ErrorReport words;
    words.rank = world.rank();
    try {
      train(plan, world, options);
    } catch (const std::exception& error) {
      describe(error, words);
    }
    const std::scoped_lock lock(mutex);
    CHECK(words.culprit == 0);
    if (words.kind == "own") {
      own.push_back(words.message);
    } else {
      ++others;
    }
  });
  CHECK(own == std::vector<std::string>{
                   "cluster.device is cuda, but no GPU can be used: no NVIDIA driver is loaded"});
  CHECK(others == 3);
  CHECK(steps == 0);
}

TEST_CASE("a GPU's blocks are in the ledger by category until they are freed, on any thread") {
  class Listened final : public Gpu {
   public:
    c10::Device device() const override { return c10::DeviceType::CPU; }
    std::string name() const override { return ""; }
    const DeviceFunctions& functions() const override { std::abort(); }
    DeviceMemory& memory() override { std::abort(); }
    DeviceCollectivesLibrary& collectives() override { throw std::logic_error("unused"); }
    GpuMarks& marks() override { std::abort(); }
    void listen(AllocationListener* hears) override { listener = hears; }
    int64_t cache_flushes() const override { return 0; }
    AllocationListener* listener = nullptr;
  };
  Listened gpu;
  MemoryLedger ledger(3, 0);
  ledger.set_phase({"forward", 2, 1, 0});
  {
    const GpuLedger on_gpu(gpu, ledger);
    int blocks[3];
    {
      const CategoryScope category(MemoryCategory::kActivations);
      gpu.listener->allocated(&blocks[0], 1000);
      gpu.listener->allocated(&blocks[1], 24);
    }
    gpu.listener->allocated(&blocks[2], 8);
    CHECK(ledger.live().bytes == 1032);
    CHECK(ledger.live().by_category[static_cast<size_t>(MemoryCategory::kActivations)] == 1024);
    std::thread([&] { gpu.listener->freed(&blocks[0]); }).join();
    CHECK(ledger.live().bytes == 32);
    CHECK(ledger.peak().bytes == 1032);
    gpu.listener->freed(&blocks);  // the same address again is another block
    const OutOfMemory refused =
        gpu_out_of_memory(ledger, "CUDA out of memory. Tried to allocate 2.00 GiB.\nException");
    CHECK(refused.phase == "step 2: forward, microbatch 1, layer 0");
    CHECK(std::string(refused.what()) ==
          "rank 3: out of GPU memory in step 2: forward, microbatch 1, layer 0 with 32 bytes in "
          "use: CUDA out of memory. Tried to allocate 2.00 GiB.; largest: 24 bytes of activations "
          "(step 2: forward, microbatch 1, layer 0), 8 bytes of workspace (step 2: forward, "
          "microbatch 1, layer 0)");
  }
  CHECK(gpu.listener == nullptr);
  CHECK(ledger.live().bytes == 0);
}
