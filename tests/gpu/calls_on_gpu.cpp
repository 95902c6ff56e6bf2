#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/any_call.h"
#include "forked_ranks.h"
#include "gpu/gpu.h"
#include "ledger/tensor_factories.h"
#include "sample_calls.h"
#include "smp/comm/device/staged_communicator.h"
#include "smp/comm/jobs/job_environment.h"

// Calls of tensors on a GPU, between processes that share it or have one each: whether every
// element is right, and how long they take beside what copying alone takes. scripts/check-gpu.
//
//   smp_gpu_calls check RANKS             a row for each operation; exit code 1 when one is wrong
//   smp_gpu_calls time RANKS BYTES ...    a row for each operation and size
namespace smp {
namespace {

using testing::AnyCall;

// Makes each call of host memory one of GPU memory: there and back again.
class OnGpu final : public comm::WrappedCommunicator {
 public:
  OnGpu(comm::Communicator& staged, gpu::Gpu& gpu) : comm::WrappedCommunicator(staged), gpu_(gpu) {}

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override {
    return inner().split(members);
  }

 private:
  // Memory of the host, and as much on the GPU.
  struct Twin {
    std::byte* host = nullptr;
    int64_t bytes = 0;
    at::Tensor on_gpu;

    void* of(const void* data) const {
      const auto* const at = static_cast<const std::byte*>(data);
      return at == nullptr ? nullptr : on_gpu.data_ptr<uint8_t>() + (at - host);
    }
  };

  class ThereAndBack final : public comm::Work {
   public:
    ThereAndBack(OnGpu& comm, std::vector<Twin> twins, comm::WorkPtr work)
        : comm_(comm), twins_(std::move(twins)), work_(std::move(work)) {}
    bool done() override { return false; }  // until it is waited for
    void wait() override {
      work_->wait();
      for (const Twin& twin : twins_)
        comm_.memory()
            .start_to_host(twin.host, twin.of(twin.host), twin.bytes, *comm_.memory().until_now())
            ->wait();
    }

   private:
    OnGpu& comm_;
    const std::vector<Twin> twins_;
    const comm::WorkPtr work_;
  };

  device::DeviceMemory& memory() { return gpu_.memory(); }

  // What a rank puts into a call and gets out of it.
  std::pair<int64_t, int64_t> bytes_of_sides(const Call& call) const {
    const int64_t part = call.count * bytes_of(call.dtype), all = part * size();
    const bool is_root = rank() == call.peer;
    switch (call.op) {
      case mesh::CollectiveOp::kAllGather: return {part, all};
      case mesh::CollectiveOp::kReduceScatter: return {part, part / size()};
      case mesh::CollectiveOp::kBroadcast:
      case mesh::CollectiveOp::kRecv: return {0, part};
      case mesh::CollectiveOp::kReduce: return {part, is_root ? part : 0};
      case mesh::CollectiveOp::kGather: return {part, is_root ? all : 0};
      case mesh::CollectiveOp::kScatter: return {is_root ? all : 0, part};
      case mesh::CollectiveOp::kAllToAll: return {all, all};
      case mesh::CollectiveOp::kSend: return {part, 0};
      default: return {part, part};
    }
  }

  Twin twin_of(std::byte* host, int64_t bytes) {
    Twin twin{host, bytes,
              ledger::empty_tensor({bytes}, at::TensorOptions(gpu_.device()).dtype(at::kByte))};
    const device::CopyPtr now = memory().until_now();
    memory().start_to_device(twin.of(host), host, bytes, *now)->follow();
    return twin;
  }

  comm::WorkPtr pass(const Call& call) override {
    auto [in_bytes, out_bytes] = bytes_of_sides(call);
    auto* const in = static_cast<std::byte*>(const_cast<void*>(call.in));
    auto* const out = static_cast<std::byte*>(call.out);
    std::vector<Twin> twins;
    Call there = call;
    if (in_bytes > 0 && out_bytes > 0 && in < out + out_bytes && out < in + in_bytes) {
      std::byte* const begin = std::min(in, out);
      twins.push_back(twin_of(begin, std::max(in + in_bytes, out + out_bytes) - begin));
      there.in = twins[0].of(in), there.out = twins[0].of(out);
    } else {
      if (in_bytes > 0) twins.push_back(twin_of(in, in_bytes)), there.in = twins.back().of(in);
      if (out_bytes > 0) twins.push_back(twin_of(out, out_bytes)), there.out = twins.back().of(out);
    }
    return std::make_shared<ThereAndBack>(*this, std::move(twins), make(there, inner()));
  }

  gpu::Gpu& gpu_;
};

struct Rank {
  explicit Rank(const jobs::JobEnvironment& job)
      : world(jobs::connect(job, [](const std::string&) {})),
        gpu(gpu::cuda_module_loader("")({.local_rank = job.local_rank})),
        staged(*world, gpu->memory()) {}

  const std::unique_ptr<comm::Communicator> world;
  const std::shared_ptr<gpu::Gpu> gpu;
  device::StagedCommunicator staged;
};

int64_t sum_of_ranks(comm::Communicator& world, int64_t value) {
  world.all_reduce(&value, &value, 1, DType::kI64, comm::ReduceOp::kSum, "sum")->wait();
  return value;
}

// One element, some, and more than two parts of a long call; the odd ones divide by no rank count.
constexpr int64_t kCounts[] = {1, 7, 1000, 70'001, (9 << 20) / 4 + 5};

int check(Rank& rank) {
  OnGpu on_gpu(rank.staged, *rank.gpu);
  int64_t all_wrong = 0;
  for (const mesh::CollectiveOp op : testing::kOps) {
    AnyCall call;
    call.op = op;
    int64_t calls = 0, wrong = 0;
    for (const DType dtype : testing::kDTypes)
      for (const int64_t count : kCounts)
        for (const bool in_place : {false, true})
          for (const comm::ReduceOp reduction : testing::kReduceOps) {
            if (in_place && !call.can_be_in_place()) continue;
            if (reduction != testing::kReduceOps[0] && !call.reduces()) continue;
            if (reduction != testing::kReduceOps[0] && count == std::end(kCounts)[-1]) continue;
            call.dtype = dtype, call.count = count, call.reduction = reduction;
            call.in_place = in_place;
            ++call.salt;
            call.root = call.has_root() ? int(call.salt % on_gpu.size()) : 0;
            const int64_t here = testing::wrong_elements(on_gpu, call);
            if (here > 0)
              fmt::print(stderr, "rank {}: {}: {} wrong\n", on_gpu.rank(), text_of(call), here);
            wrong += here, ++calls;
          }
    wrong = sum_of_ranks(*rank.world, wrong);
    if (on_gpu.rank() == 0)
      fmt::print("| {} | {} | {} | {} |\n", name_of(op), on_gpu.size(), calls, wrong);
    all_wrong += wrong;
  }
  return all_wrong == 0 ? 0 : 1;
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double slowest(comm::Communicator& world, double mine) {
  world.all_reduce(&mine, &mine, 1, DType::kF64, comm::ReduceOp::kMax, "times")->wait();
  return mine;
}

// Seconds of a call: of the slowest rank, the median of the samples.
template <class CallOnce>
double seconds_of(comm::Communicator& world, const CallOnce& call) {
  return median_of_samples(7, 0.02, 10'000, [&](int calls) {
    world.barrier("start")->wait();
    const double start = now_s();
    for (int i = 0; i < calls; ++i) call();
    return slowest(world, now_s() - start);
  });
}

// Ranks copy what the call copies, all at once and nothing else: what no call that goes by the host
// can fall below.
double seconds_of_copies(Rank& rank, const at::Tensor& whole, int64_t to_host, int64_t to_device) {
  device::DeviceMemory& memory = rank.gpu->memory();
  const int64_t bytes = std::max(to_host, to_device);
  const auto down = rank.world->allocate_symmetric(bytes);
  const auto up = rank.world->allocate_symmetric(bytes);
  memory.pin(down.get(), bytes), memory.pin(up.get(), bytes);
  const at::Tensor other = ledger::empty_tensor(whole.sizes(), whole.options());
  const double seconds = seconds_of(*rank.world, [&] {
    const device::CopyPtr now = memory.until_now();
    const device::CopyPtr going = memory.start_to_host(down.get(), whole.data_ptr(), to_host, *now);
    const device::CopyPtr coming =
        memory.start_to_device(other.data_ptr(), up.get(), to_device, *now);
    going->wait(), coming->wait();
  });
  memory.unpin(down.get()), memory.unpin(up.get());
  return seconds;
}

// `bytes` are those of the full buffer, as in nccl-tests.
void time_call(Rank& rank, mesh::CollectiveOp op, int64_t bytes) {
  const int size = rank.staged.size();
  const int64_t part = bytes / 4 / size, count = part * size;
  const auto options = at::TensorOptions(rank.gpu->device()).dtype(at::kFloat);
  const at::Tensor whole = ledger::zero_tensor({count}, options),
                   own = ledger::zero_tensor({part}, options);
  const auto call = [&](comm::Communicator& on, void* all, void* mine) -> comm::WorkPtr {
    if (op == mesh::CollectiveOp::kAllGather)
      return on.all_gather(mine, all, part, DType::kF32, "time");
    if (op == mesh::CollectiveOp::kReduceScatter)
      return on.reduce_scatter(all, mine, count, DType::kF32, comm::ReduceOp::kSum, "time");
    return on.all_reduce(all, all, count, DType::kF32, comm::ReduceOp::kSum, "time");
  };
  const double seconds = seconds_of(*rank.world, [&] {
    call(rank.staged, whole.data_ptr(), own.data_ptr())->wait();
    rank.gpu->memory().until_now()->wait();
  });
  const int64_t all = count * 4, one = part * 4;
  const auto all_here = rank.world->allocate_symmetric(all),
             one_here = rank.world->allocate_symmetric(one);
  const double on_host =
      seconds_of(*rank.world, [&] { call(*rank.world, all_here.get(), one_here.get())->wait(); });
  const double copies =
      seconds_of_copies(rank, whole, op == mesh::CollectiveOp::kAllGather ? one : all,
                        op == mesh::CollectiveOp::kReduceScatter ? one : all);
  if (rank.world->rank() != 0) return;
  fmt::print("| {} | {} | {} | {:.1f} | {:.2f} | {:.1f} | {:.1f} | {:.2f} |\n", name_of(op), size,
             all, seconds * 1e6, double(all) / seconds * 1e-9, copies * 1e6, on_host * 1e6,
             copies / seconds);
}

int run(const std::string& what, const jobs::JobEnvironment& job,
        const std::vector<int64_t>& sizes) {
  Rank rank(job);
  if (what == "check") return check(rank);
  let_settle([&](double mine) { return slowest(*rank.world, mine); });
  for (const mesh::CollectiveOp op :
       {mesh::CollectiveOp::kAllReduce, mesh::CollectiveOp::kAllGather,
        mesh::CollectiveOp::kReduceScatter})
    for (const int64_t bytes : sizes) time_call(rank, op, bytes);
  return 0;
}

}  // namespace
}  // namespace smp

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 0;
  std::vector<int64_t> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (ranks < 1 || (what == "check" ? !sizes.empty() : what != "time" || sizes.empty())) {
    fmt::print(stderr,
               "usage: smp_gpu_calls check RANKS\n       smp_gpu_calls time RANKS BYTES ...\n");
    return 2;
  }
  fmt::print("{}", what == "check"
                       ? "| call | ranks | calls | wrong elements |\n|---|---|---|---|\n"
                       : "| call | ranks | bytes | us | GB/s | copies alone us | host alone us | "
                         "of copies' rate |\n"
                         "|---|---|---|---|---|---|---|---|\n");
  std::fflush(stdout);
  return smp::run_forked_ranks(ranks, [&](const smp::jobs::JobEnvironment& job) {
    try {
      return smp::run(what, job, sizes);
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {}: {}\n", job.rank, error.what());
      return 3;
    }
  });
}
