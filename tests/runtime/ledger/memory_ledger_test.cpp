#include "smp/runtime/ledger/memory_ledger.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu.h>
#include <doctest/doctest.h>

#include <thread>

#include "ledger/tensor_factories.h"
#include "smp/runtime/ledger/memory_report.h"

using namespace smp;
using namespace smp::ledger;

namespace {

int64_t bytes_in(const MemoryUse& use, MemoryCategory category) {
  return use.by_category[static_cast<size_t>(category)];
}

at::Tensor floats(int64_t count) { return empty_tensor({count}, at::kFloat); }

}  // namespace

TEST_CASE("a ledger counts tensors to the byte, by category, at the peak too") {
  install_counting_allocator();
  MemoryLedger ledger(3, 0);
  const LedgerScope scope(ledger);
  {
    const CategoryScope weights(MemoryCategory::kWeights);
    const at::Tensor held = floats(1000);
    {
      ledger.set_phase({"forward", 7, 2, 3});
      const CategoryScope activations(MemoryCategory::kActivations);
      const at::Tensor saved = floats(33);  // no rounding to the alignment
      CHECK(ledger.live().bytes == 4132);
      CHECK(bytes_in(ledger.live(), MemoryCategory::kWeights) == 4000);
      CHECK(bytes_in(ledger.live(), MemoryCategory::kActivations) == 132);
    }
    ledger.set_phase({"backward", 7});
    const at::Tensor smaller = floats(1);
    CHECK(ledger.live().bytes == 4004);
  }
  CHECK(ledger.live().bytes == 0);
  const MemoryUse peak = ledger.peak();
  CHECK(peak.bytes == 4132);
  CHECK(bytes_in(peak, MemoryCategory::kWeights) == 4000);
  CHECK(bytes_in(peak, MemoryCategory::kActivations) == 132);
  CHECK(to_string(peak.phase) == "step 7: forward, microbatch 2, layer 3");
  ledger.reset_peak();
  CHECK(ledger.peak().bytes == 0);
}

TEST_CASE("tensors of the counting allocator are aligned, and empty ones cost nothing") {
  install_counting_allocator();
  MemoryLedger ledger(0, 0);
  const LedgerScope scope(ledger);
  for (const int64_t count : {1, 7, 16, 1001}) {
    CHECK(reinterpret_cast<uintptr_t>(floats(count).data_ptr()) % 64 == 0);
  }
  const at::Tensor nothing = floats(0);
  CHECK(ledger.live().bytes == 0);
}

TEST_CASE("library code that allocates raw memory goes through the counting allocator") {
  install_counting_allocator();  // oneDNN's GELU once aborted here: get() != get_context()
  MemoryLedger ledger(0, 0);
  const LedgerScope scope(ledger);
  const at::Tensor y = at::gelu(full_tensor({64, 64}, 1, at::kFloat));
  CHECK(ledger.live().bytes == 64 * 64 * 4);
}

TEST_CASE(
    "a tensor freed on another thread, or after its ledger, is released where it was counted") {
  install_counting_allocator();
  at::Tensor survivor;
  MemoryLedger other(1, 0);
  {
    MemoryLedger ledger(0, 0);
    {
      const LedgerScope scope(ledger);
      at::Tensor moved = floats(10);
      std::thread([tensor = std::move(moved), &other]() mutable {
        const LedgerScope elsewhere(other);
        tensor.reset();
      }).join();
      CHECK(ledger.live().bytes == 0);
      survivor = floats(5);
    }
    CHECK(ledger.live().bytes == 20);
  }
  survivor.reset();
  CHECK(other.live().bytes == 0);
  CHECK(other.peak().bytes == 0);
}

TEST_CASE("ranks that are threads keep ledgers of their own") {
  install_counting_allocator();
  std::vector<std::thread> ranks;
  std::vector<int64_t> peaks(4);
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    ranks.emplace_back([&peaks, rank] {
      MemoryLedger ledger(static_cast<int64_t>(rank), 0);
      const LedgerScope scope(ledger);
      for (int i = 0; i < 200; ++i) floats(100 * static_cast<int64_t>(rank + 1));
      peaks[rank] = ledger.peak().bytes;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(peaks == std::vector<int64_t>{400, 800, 1200, 1600});
}

TEST_CASE("threads without a ledger count for the process, once it is one rank") {
  install_counting_allocator();
  MemoryLedger ledger(0, 0);
  const at::Tensor before = floats(10);
  CHECK(ledger.live().bytes == 0);
  set_process_ledger(&ledger);
  const at::Tensor after = floats(10);
  CHECK(ledger.live().bytes == 40);
  set_process_ledger(nullptr);
}

TEST_CASE("an allocation beyond the limit is refused with rank, phase, bytes and advice") {
  install_counting_allocator();
  MemoryLedger ledger(2, 10000);
  const LedgerScope scope(ledger);
  ledger.set_phase({"forward", 0, 1, 4});
  const CategoryScope optimizer(MemoryCategory::kOptimizer);
  const at::Tensor state = [] {
    const ItemScope item("momentum");
    return floats(2000);
  }();
  {
    const CategoryScope activations(MemoryCategory::kActivations);
    const at::Tensor saved = floats(250);
    CHECK_THROWS_WITH_AS(
        floats(251),
        "rank 2: out of memory in step 0: forward, microbatch 1, layer 4: requested 1004 bytes "
        "(activations) with 9000 of 10000 in use (optimizer 8000, activations 1000); to reduce "
        "activations: lower training.micro_batch, or raise parallel.tensor_parallel_degree; to "
        "reduce optimizer, the largest category: set parallel.shard_optimizer_state: true, or, if "
        "it is true already, raise parallel.tensor_parallel_degree or "
        "parallel.pipeline_parallel_degree; largest: 8000 bytes of optimizer (momentum), 1000 "
        "bytes of activations (step 0: forward, microbatch 1, layer 4)",
        OutOfMemory);
    CHECK(ledger.live().bytes == 9000);
    const at::Tensor fits = floats(250);
    CHECK(ledger.live().bytes == 10000);
  }
  CHECK(ledger.live().bytes == 8000);
}

TEST_CASE("a request that is too large by itself is what the advice is about") {
  MemoryLedger ledger(0, 100);
  CHECK_THROWS_WITH_AS(
      ledger.charge(MemoryCategory::kCommunication, 101),
      "rank 0: out of memory in setup: requested 101 bytes (communication) with 0 of 100 in use "
      "(nothing); to reduce communication: lower training.micro_batch for smaller messages, or set "
      "unused parallel degrees to 1 for fewer groups of ranks",
      OutOfMemory);
}

TEST_CASE("an error of the host's pool is about the host") {
  MemoryLedger ledger(1, 100, MemoryPool::kHost);
  const ItemScope item("momentum");
  const MemoryCharge state(ledger, MemoryCategory::kOptimizer, 60);
  CHECK_THROWS_WITH_AS(
      MemoryCharge(ledger, MemoryCategory::kOptimizer, 60),
      "rank 1: out of host memory in setup: requested 60 bytes (optimizer) with 60 of 100 in use "
      "(optimizer 60); raise cluster.host_memory, which the processes of a host share, or offload "
      "less; largest: 60 bytes of optimizer (momentum)",
      OutOfMemory);
}

TEST_CASE("after the last step no degree or batch helps any more") {
  MemoryLedger ledger(1, 100);
  ledger.set_phase({kSavePhase.data()});
  CHECK_THROWS_WITH_AS(ledger.charge(MemoryCategory::kWorkspace, 101),
                       "rank 1: out of memory in save: requested 101 bytes (workspace) with 0 of "
                       "100 in use (nothing); raise cluster.memory_per_process",
                       OutOfMemory);
}

TEST_CASE("a charge counts what no allocator sees, once, wherever it moves") {
  MemoryLedger ledger(0, 0);
  {
    MemoryCharge charge(ledger, MemoryCategory::kCommunication, 64);
    MemoryCharge moved = std::move(charge);
    CHECK(ledger.live().bytes == 64);
    moved = MemoryCharge(ledger, MemoryCategory::kData, 8);
    CHECK(ledger.live().bytes == 8);
    CHECK(bytes_in(ledger.live(), MemoryCategory::kData) == 8);
  }
  CHECK(ledger.live().bytes == 0);
  CHECK(ledger.peak().bytes == 72);
}

TEST_CASE("the largest live items are named: allocations and charges, by phase or by their words") {
  install_counting_allocator();
  MemoryLedger ledger(0, 0);
  const LedgerScope scope(ledger);
  CHECK(ledger.largest().empty());
  std::vector<at::Tensor> held;
  for (int64_t layer = 0; layer < 20; ++layer) {
    ledger.set_phase({"forward", 3, 1, layer});
    held.push_back(floats(100 + layer));
  }
  const ItemScope item("segments");
  MemoryCharge charge(ledger, MemoryCategory::kCommunication, 5000);
  MemoryCharge moved = std::move(charge);
  held.erase(held.begin() + 19);
  const std::vector<MemoryItem> largest = ledger.largest();
  REQUIRE(largest.size() == kItemsNamed);
  CHECK(largest[0].bytes == 5000);
  CHECK(largest[0].what == "segments");
  CHECK(largest[0].category == MemoryCategory::kCommunication);
  CHECK(largest[1].bytes == 472);
  CHECK(largest[1].what == "step 3: forward, microbatch 1, layer 18");
  CHECK(largest[9].what == "step 3: forward, microbatch 1, layer 10");
  moved = MemoryCharge();
  CHECK(ledger.largest(1).front().bytes == 472);
}

TEST_CASE("a memory report has both pools, live and peak by category, and the largest items") {
  install_counting_allocator();
  MemoryLedger device(2, 6000), host(2, 0);
  device.set_phase({"forward", 1, 0, 2});
  const MemoryCharge weights(device, MemoryCategory::kWeights, 4000);
  { const MemoryCharge gone(device, MemoryCategory::kWorkspace, 1000); }
  device.set_phase({"offload", 1, 0, 2});
  const std::string without_host =
      "memory of rank 2 in step 1: offload, microbatch 0, layer 2\n"
      "device memory of 6000: bytes in use now, at the peak (step 1: forward, microbatch 0, layer "
      "2)\n"
      "  weights                     4000              4000\n"
      "  workspace                      0              1000\n"
      "  all                         4000              5000\n"
      "  largest items in use now\n"
      "              4000  weights       step 1: forward, microbatch 0, layer 2\n";
  CHECK(memory_report(device, host) == without_host);
  const ItemScope item("momentum");
  const MemoryCharge state(host, MemoryCategory::kOptimizer, 70);
  const std::string all = without_host +
                          "host memory: bytes in use now, at the peak (setup)\n"
                          "  optimizer                     70                70\n"
                          "  all                           70                70\n"
                          "  largest items in use now\n"
                          "                70  optimizer     momentum\n";
  CHECK(memory_report(device, host) == all);
  MemoryWatch watch;
  CHECK(watch.report() == "");
  {
    const MemoryWatch::Show shown(&watch, device, host);
    CHECK(watch.report() == all);
  }
  CHECK(watch.report() == "");
}
