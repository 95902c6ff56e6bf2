#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "comm/layouts.h"
#include "comm/values.h"
#include "net/wire_message.h"
#include "smp/comm/communicator.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::testing;

TEST_CASE("long calls gather and hand out inside a host while their pieces are between hosts") {
  constexpr int64_t kCount = 2 * net::kPieceBytes + 5;  // of each rank
  HostsOptions plain, messages;
  messages.faults.wants_own_memory = true, messages.faults.reorder = true;
  for (const HostsOptions& options : {plain, messages})
    run_hosts(
        2, 2,
        [](Communicator& comm) {
          const int size = comm.size(), rank = comm.rank();
          const auto wrong_of = [&](Values& all) {
            int64_t wrong = 0;
            for (int64_t i = 0; i < kCount * size; ++i)
              wrong += all.get(i) != value_of(int(i / kCount), i % kCount);
            return wrong;
          };
          Values own(DType::kU8, kCount), all(DType::kU8, kCount * size);
          for (int64_t i = 0; i < kCount; ++i) own.set(i, value_of(rank, i));
          for (const int root : {1, size - 1}) {
            CAPTURE(root);
            const bool is_root = rank == root;
            memset(all.data(), 0, size_t(kCount * size));
            comm.gather(own.data(), is_root ? all.data() : nullptr, kCount, DType::kU8, root, "x")
                ->wait();
            if (is_root) CHECK(wrong_of(all) == 0);
            memset(own.data(), 0, size_t(kCount));
            comm.scatter(is_root ? all.data() : nullptr, own.data(), kCount, DType::kU8, root, "x")
                ->wait();
            comm.all_gather(own.data(), all.data(), kCount, DType::kU8, "x")->wait();
            CHECK(wrong_of(all) == 0);
          }
        },
        options);
}

TEST_CASE("calls with a root refuse one that is not there, and are numbered on") {
  run_ranks(2, [](Communicator& comm) {
    float x[4] = {};
    CHECK_THROWS_WITH_AS(comm.reduce(x, x, 4, DType::kF32, ReduceOp::kSum, 2, "x"),
                         "reduce 'x': root 2 is not in the group of 2 ranks",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(comm.gather(x, x, 2, DType::kF32, -1, "x"),
                         "gather 'x': root -1 is not in the group of 2 ranks",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(comm.scatter(x, x, 2, DType::kF32, 5, "x"),
                         "scatter 'x': root 5 is not in the group of 2 ranks",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(comm.all_to_all(x, x, -2, DType::kF32, "x"),
                         "all_to_all 'x': expected a count of at least 0, not -2",
                         std::invalid_argument);
    comm.barrier("b")->wait();
  });
}
