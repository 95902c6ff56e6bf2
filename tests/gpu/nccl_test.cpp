#include <ATen/core/Tensor.h>
#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <numeric>

#include "device_communicator.h"
#include "gpu/a_gpu.h"
#include "new_tensors.h"
#include "smp/comm/staged_communicator.h"
#include "smp/comm/thread_group.h"

// NCCL behind the interface of Communicator. It refuses ranks that share a GPU, so there is one.
using namespace smp;
using namespace smp::test;

namespace {

// A group of one rank by NCCL.
template <class Program>
void by_nccl(const Program& program) {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  run_ranks(1, [&](Communicator& world) {
    StagedCommunicator staged(world, gpu->memory());
    DeviceCommunicator talking(staged, world, gpu->memory(), gpu->collectives(),
                               std::chrono::seconds(60));
    program(*gpu, talking);
  });
}

at::Tensor numbers(const Gpu& gpu) {
  return full_tensor({1000}, 1, at::kFloat).cumsum(0).to(gpu.device());
}

}  // namespace

TEST_CASE("by NCCL, one rank: every call between GPUs gives what it must") {
  by_nccl([](const Gpu& gpu, Communicator& comm) {
    const at::Tensor in = numbers(gpu), out = zero_tensor_like(in);
    const auto is_copied = [&] {
      const bool same = out.equal(in);
      out.zero_();
      return same;
    };
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAverage}) {
      comm.all_reduce(in.data_ptr(), out.data_ptr(), 1000, DType::kF32, op, "a")->wait();
      CHECK(is_copied());
    }
    comm.all_gather(in.data_ptr(), out.data_ptr(), 1000, DType::kF32, "b")->wait();
    CHECK(is_copied());
    comm.reduce_scatter(in.data_ptr(), out.data_ptr(), 1000, DType::kF32, ReduceOp::kSum, "c")
        ->wait();
    CHECK(is_copied());
    const at::Tensor same = in.clone();
    const WorkPtr work = comm.broadcast(same.data_ptr(), 1000, DType::kF32, 0, "d");
    while (!work->done()) continue;
    CHECK(same.equal(in));
    const auto half = comm.split({0});
    half->all_reduce(in.data_ptr(), out.data_ptr(), 1000, DType::kF32, ReduceOp::kSum, "e")->wait();
    CHECK(is_copied());
  });
}

TEST_CASE("by NCCL, one rank: after an abort calls fail, and say why") {
  by_nccl([](const Gpu& gpu, Communicator& comm) {
    const at::Tensor values = numbers(gpu);
    const auto reduce = [&] {
      comm.all_reduce(values.data_ptr(), values.data_ptr(), 1000, DType::kF32, ReduceOp::kSum, "x")
          ->wait();
    };
    reduce();
    comm.abort("enough");
    std::string said;
    try {
      reduce();
    } catch (const CommError& error) {
      said = error.what();
    }
    CHECK(said.find("enough") != std::string::npos);
  });
}
