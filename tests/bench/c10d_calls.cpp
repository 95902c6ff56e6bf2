#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <filesystem>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend.h"
#include "store_rendezvous.h"
#include "timed_processes.h"

// What c10d, PyTorch's C++ below Python, adds to a call of the library: an all_reduce in private
// memory through c10d::ProcessGroup and straight, of one communicator, by turns. For
// scripts/bench-pytorch; writes {"c10d": seconds, "library": seconds}, medians of the rounds.
//
//   c10d_calls OUT BYTES
namespace smp::bench {
namespace {

constexpr int kRanks = 2, kRounds = 9;
constexpr std::chrono::minutes kTimeout{5};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run_rank(TimedProcesses& all, int rank, const TimedArguments& arguments) {
  at::set_num_threads(1);
  const auto store = c10::make_intrusive<c10d::FileStore>(arguments.out + ".meeting", kRanks);
  const c10d::DistributedBackendOptions options{store, rank, kRanks, kTimeout, "0", {0, 1}};
  auto communicator = pytorch::rendezvous(options, pytorch::RendezvousEnvironment::read());
  comm::Communicator& library = *communicator;
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, kRanks);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  group->setBackend(
      c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::make_intrusive<pytorch::SmpBackend>(std::move(communicator), "process group 0", kTimeout,
                                               [](const std::function<void()>& run) { run(); }));

  std::vector<at::Tensor> tensors = {at::zeros({arguments.sizes[0] / 4})};
  void* const data = tensors[0].data_ptr();
  const auto through_c10d = [&] { group->allreduce(tensors)->wait(); };
  const auto straight = [&] {
    library
        .all_reduce(data, data, tensors[0].numel(), DType::kF32, comm::ReduceOp::kSum, "straight")
        ->wait();
  };
  std::vector<double> of_c10d, of_library;
  for (int round = 0; round < kRounds; ++round) {
    of_c10d.push_back(all.median_of(through_c10d, [] {}));
    of_library.push_back(all.median_of(straight, [] {}));
  }
  group->shutdown();
  if (rank == 0)
    write_text(arguments.out, fmt::format("{{\"c10d\": {:.9f}, \"library\": {:.9f}}}\n",
                                          median(of_c10d), median(of_library)));
}

int run(int argc, char** argv) {
  const TimedArguments arguments(argc, argv, 1);
  const bool is_good = TimedProcesses::run(
      kRanks, false, [&](TimedProcesses& all, int rank) { run_rank(all, rank, arguments); });
  std::filesystem::remove(arguments.out + ".meeting");
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  return smp::bench::run_program("c10d_calls", smp::bench::run, argc, argv);
}
