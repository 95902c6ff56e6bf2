#include <ATen/core/Tensor.h>
#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "gpu/device_calls.h"
#include "gpu/first_gpu.h"
#include "ledger/tensor_factories.h"
#include "smp/comm/jobs/thread_group.h"

// NCCL by itself, behind what DeviceCommunicator calls. It refuses ranks that share a GPU, so there
// is one.
using namespace smp;
using namespace smp::comm;
using namespace smp::device;
using namespace smp::gpu;
using namespace smp::jobs;
using namespace smp::ledger;
using namespace smp::test;

namespace {

constexpr std::chrono::seconds kAllTime{60};

void become_ready(DeviceCollectives& group) {
  const auto begin = std::chrono::steady_clock::now();
  while (!group.is_ready()) {
    REQUIRE(std::chrono::steady_clock::now() - begin < kAllTime);
    std::this_thread::yield();
  }
}

std::unique_ptr<DeviceCollectives> group_of_one(Gpu& gpu) {
  DeviceCollectivesLibrary& nccl = gpu.collectives();
  auto group = nccl.join(nccl.fresh_id(), 0, 1);
  become_ready(*group);
  return group;
}

at::Tensor numbers(const Gpu& gpu) {
  return full_tensor({1000}, 1, at::kFloat).cumsum(0).to(gpu.device());
}

}  // namespace

TEST_CASE("NCCL on one rank: every call that goes between GPUs gives what it was given") {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  const auto group = group_of_one(*gpu);
  const at::Tensor in = numbers(*gpu), out = zero_tensor_like(in);
  const auto end = [&] {
    become_ready(*group);
    return group->until_now();
  };
  const auto gives_it = [&] {
    end()->follow();
    const bool same = out.equal(in);
    out.zero_();
    return same;
  };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAverage}) {
    group->all_reduce(in.data_ptr(), out.data_ptr(), 1000, DType::kF32, op);
    CHECK(gives_it());
    group->reduce_scatter(in.data_ptr(), out.data_ptr(), 1000, DType::kF32, op);
    CHECK(gives_it());
  }
  group->all_gather(in.data_ptr(), out.data_ptr(), 1000, DType::kF32);
  CHECK(gives_it());
  const at::Tensor same = in.clone();
  group->broadcast(same.data_ptr(), 1000, DType::kF32, 0);
  const CopyPtr broadcast = end();
  broadcast->wait();
  CHECK(broadcast->done());
  CHECK(same.equal(in));
  CHECK(group->error().empty());
}

TEST_CASE("NCCL on one rank: after a failure nothing starts any more") {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  const at::Tensor values = numbers(*gpu);
  run_ranks(1, [&](Communicator& guards) {
    gpu->collectives().use_on_this_thread();
    DeviceGroup group(group_of_one(*gpu), guards);
    const auto reduce = [&](DeviceCollectives& calls) {
      calls.all_reduce(values.data_ptr(), values.data_ptr(), 1000, DType::kF32, ReduceOp::kSum);
    };
    group.start(reduce)->wait();
    CHECK(group.error().empty());
    group.fail({CommError::Kind::kAborted, 0, "a test"});
    CHECK_THROWS_WITH_AS(group.start(reduce), "a test", CommError);
  });
}
