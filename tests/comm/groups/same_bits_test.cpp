#include <doctest/doctest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/any_call.h"
#include "comm/fabric_ranks.h"
#include "comm/fake_network.h"
#include "comm/on_paths.h"
#include "comm/values.h"
#include "smp/comm/jobs/thread_group.h"

// Sums have the same bits on all ranks and in all runs, however the ranks come and whatever the
// network does.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRuns = 20;  // the bits are those of the release build; races need fewer
#else
constexpr int kRuns = 100;
#endif

uint16_t nearest_bf16(float x) {  // ties to even; no NaN
  const auto bits = std::bit_cast<uint32_t>(x);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

using Bits = std::vector<std::byte>;

void put(Bits& bits, DType dtype, int64_t i, float x) {
  const uint16_t half = nearest_bf16(x);
  if (dtype == DType::kF32) memcpy(bits.data() + 4 * i, &x, 4);
  if (dtype == DType::kBF16) memcpy(bits.data() + 2 * i, &half, 2);
}

float get(const Bits& bits, DType dtype, int64_t i) {
  float x = 0;
  uint16_t half = 0;
  if (dtype == DType::kF32) memcpy(&x, bits.data() + 4 * i, 4);
  if (dtype == DType::kF32) return x;
  memcpy(&half, bits.data() + 2 * i, 2);
  return bf16_value(half);
}

// Numbers whose sums depend on the order.
Bits input_of(DType dtype, int rank, int64_t count) {
  Bits bits(size_t(count * bytes_of(dtype)));
  for (int64_t i = 0; i < count; ++i)
    put(bits, dtype, i, std::sin(float(i) * 1.7f + float(rank)) * std::pow(10.0f, float(rank % 4)));
  return bits;
}

// fp32 sums of all ranks, in an order: rank by rank, or those of each host first, which are added
// host by host. Rounded once.
Bits sum_of(DType dtype, int size, int per_host, int64_t count) {
  std::vector<Bits> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(input_of(dtype, rank, count));
  Bits bits(inputs[0].size());
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int host = 0; host < size / per_host; ++host) {
      float of_host = get(inputs[size_t(host * per_host)], dtype, i);
      for (int rank = host * per_host + 1; rank < (host + 1) * per_host; ++rank)
        of_host += get(inputs[size_t(rank)], dtype, i);
      sum = host == 0 ? of_host : sum + of_host;
    }
    put(bits, dtype, i, sum);
  }
  return bits;
}

// How many of the runs on this rank gave other bits. Each tenth run is a new group's.
int64_t runs_that_differ(Communicator& world, int per_host, bool is_symmetric) {
  const int size = world.size(), rank = world.rank();
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  SymmetricRoom room(world);
  int64_t wrong = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t count : {int64_t{1000}, int64_t{8009 * size}}) {  // one-shot, and in parts
      const bool is_short = count * bytes_of(dtype) <= kOneShotBytes;
      const Bits in = input_of(dtype, rank, count);
      const Bits sum = sum_of(dtype, size, is_short ? 1 : per_host, count);
      std::shared_ptr<std::byte[]> own(new std::byte[in.size()]);
      const auto x = is_symmetric ? room.take(int64_t(in.size())) : own;
      std::unique_ptr<Communicator> group;
      for (int run = 0; run < kRuns; ++run) {
        if (run % 10 == 0) group.reset(), group = world.split(all);
        if ((run + rank) % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
        memcpy(x.get(), in.data(), in.size());
        group->all_reduce(x.get(), x.get(), count, dtype, ReduceOp::kSum, "sum")->wait();
        wrong += memcmp(x.get(), sum.data(), in.size()) != 0;
      }
    }
  return wrong;
}

}  // namespace

TEST_CASE("sums have the same bits on all ranks and in 100 runs: fp32 in rank order, bf16 once") {
  for (const int size : {3, 4, 5, 8})
    for (const int cpus : {2, size})  // which decides how private memory goes
      for (const bool is_symmetric : {false, true}) {
        if (is_symmetric && cpus == size) continue;
        run_ranks(size,
                  [&](Communicator& comm) {
                    CAPTURE(size);
                    CAPTURE(cpus);
                    CAPTURE(is_symmetric);
                    CHECK(runs_that_differ(comm, size, is_symmetric) == 0);
                  },
                  {.cpus = cpus});
      }
}

TEST_CASE(
    "between hosts sums have the same bits on all ranks and in 100 runs, though messages are "
    "late") {
  struct Layout {
    int hosts, per_host;
  };
  HostsOptions options;
  options.faults.delay_polls = 5, options.faults.reorder = true, options.faults.refuse = 0.2;
  for (const Layout& c : {Layout{3, 1}, Layout{5, 1}, Layout{2, 2}})
    run_hosts(
        c.hosts, c.per_host,
        [&](Communicator& comm) {
          CAPTURE(c.hosts);
          CAPTURE(c.per_host);
          CHECK(runs_that_differ(comm, c.per_host, false) == 0);
        },
        options);
}

TEST_CASE("over libfabric sums have the same bits on all ranks and in 100 runs" *
          doctest::test_suite("by either protocol")) {
  if (!is_here(Path::kBetweenHosts)) return;
  for (const bool is_symmetric : {false, true}) {
    auto ranks = start(3, 1, [&](Communicator& comm) {
      return std::to_string(runs_that_differ(comm, 1, is_symmetric)) + " differ";
    });
    for (const std::string& said : join(ranks)) CHECK(said == "0 differ");
  }
}
