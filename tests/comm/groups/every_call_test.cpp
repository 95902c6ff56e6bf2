#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "comm/any_call.h"
#include "comm/fabric_ranks.h"
#include "comm/layouts.h"
#include "comm/on_paths.h"

// Every call, of every dtype, reduction and count, in place and not, in private and in symmetric
// memory, against what fp64 gives.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::net;
using namespace smp::testing;

namespace {

using Counts = std::function<std::vector<int64_t>(DType)>;

// All cells of one operation; each call has other elements than the one before.
int64_t wrong_of_all(Communicator& comm, CollectiveOp op, const Counts& counts_of) {
  SymmetricRoom room(comm);
  AnyCall call;
  call.op = op;
  std::vector<int> every_root(size_t(comm.size()));
  std::iota(every_root.begin(), every_root.end(), 0);
  int64_t all_wrong = 0;
  const auto try_one = [&] {
    const int next_root = int(++call.salt % comm.size());
    const bool any_root = call.has_root() && !call.reduces() && call.dtype == DType::kU8;
    for (const int root : any_root ? every_root : std::vector<int>{next_root}) {
      call.root = call.has_root() ? root : 0;
      const int64_t wrong = wrong_elements(comm, call);
      CHECK_MESSAGE(wrong == 0, text_of(call));
      all_wrong += wrong;
    }
  };
  for (const DType dtype : kDTypes)
    for (const int64_t count : counts_of(dtype))
      for (const bool is_symmetric : {false, true})
        for (const bool in_place : {false, true})
          for (const ReduceOp reduction : kReduceOps) {
            if (in_place && !call.can_be_in_place()) continue;
            if (reduction != kReduceOps[0] && !call.reduces()) continue;
            call.dtype = dtype, call.count = count, call.reduction = reduction;
            call.room = is_symmetric ? &room : nullptr, call.in_place = in_place;
            try_one();
          }
  return all_wrong;
}

// More than a step moves, of 64-bit integers several times that: it is elements that take time. A
// slot holds pieces for all readers where each gets something else, of an all_reduce of its part.
int64_t most_bytes(CollectiveOp op, DType dtype, int size) {
  const int64_t slots = dtype != DType::kI64 ? 1 : AnyCall{op}.has_root() ? 5 : 3;
  const int64_t readers = std::max(1, size - 1);
  switch (op) {
    case CollectiveOp::kReduceScatter:
    case CollectiveOp::kScatter:
    case CollectiveOp::kAllToAll: return slots * kSlotBytes / readers;
    case CollectiveOp::kAllReduce: return slots * kSlotBytes / readers * size;
    default: return slots * kSlotBytes;
  }
}

void try_all(Communicator& comm, CollectiveOp op) {
  const int size = comm.size();
  wrong_of_all(comm, op,
               [&](DType dtype) { return counts_for(dtype, size, most_bytes(op, dtype, size)); });
}

void try_everywhere(CollectiveOp op) {
  everywhere([op](Communicator& comm) { try_all(comm, op); });
}

}  // namespace

TEST_CASE("all_reduce: every reduction of every dtype, in place and not, in both memories") {
  try_everywhere(CollectiveOp::kAllReduce);
}

// Which decides whether private memory goes through rings or slots.
TEST_CASE("all_reduce of ranks with a CPU each, or two for all: every reduction of every dtype") {
  for (const int size : {3, 8})
    for (const int cpus : {2, size})
      run_ranks(size, [](Communicator& comm) { try_all(comm, CollectiveOp::kAllReduce); },
                {.cpus = cpus});
}

TEST_CASE("reduce_scatter: every reduction of every dtype, in place and not, in both memories") {
  try_everywhere(CollectiveOp::kReduceScatter);
}

TEST_CASE("reduce: every reduction of every dtype, in place and not, in both memories") {
  try_everywhere(CollectiveOp::kReduce);
}

TEST_CASE("all_gather puts each rank's elements in rank order: all dtypes, in both memories") {
  try_everywhere(CollectiveOp::kAllGather);
}

TEST_CASE("broadcast gives everybody the root's elements: all dtypes, in both memories") {
  try_everywhere(CollectiveOp::kBroadcast);
}

TEST_CASE("gather puts everybody's elements in rank order at the root: all dtypes, both memories") {
  try_everywhere(CollectiveOp::kGather);
}

TEST_CASE("scatter gives each rank its part of what the root has: all dtypes, both memories") {
  try_everywhere(CollectiveOp::kScatter);
}

TEST_CASE("all_to_all gives each rank what every rank has for it: all dtypes, both memories") {
  try_everywhere(CollectiveOp::kAllToAll);
}

TEST_CASE("send and recv in a ring: all dtypes, both memories") {
  try_everywhere(CollectiveOp::kSend);
}

TEST_CASE("over libfabric: every call of every dtype and reduction, in both memories" *
          doctest::test_suite("by either protocol")) {
  if (!is_here(Path::kBetweenHosts)) return;
  auto ranks = start(4, 2, [](Communicator& comm) {
    int64_t wrong = 0;
    for (const CollectiveOp op : kOps)
      wrong += wrong_of_all(comm, op, [](DType dtype) {
        return std::vector<int64_t>{0, 1, 7, 4097, 300000 / bytes_of(dtype) + 5};
      });
    return std::to_string(wrong) + " wrong";
  });
  for (const std::string& said : join(ranks)) CHECK(said == "0 wrong");
}
