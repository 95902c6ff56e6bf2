#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "comm/layouts.h"
#include "comm/values.h"
#include "smp/comm/communicator.h"

using namespace smp;
using namespace smp::testing;

namespace {

constexpr int64_t kSlots = 5;  // of the largest count

}  // namespace

TEST_CASE("reduce gives the root every reduction of every dtype, in place and not") {
  everywhere([&](Communicator& comm) {
    const int size = comm.size();
    int calls = 0;
    for (const DType dtype : kDTypes)
      for (const int64_t count : counts_for(dtype, size, kSlots))
        for (const ReduceOp op : kReduceOps) {
          const int root = ++calls % size;
          const bool is_root = comm.rank() == root, in_place = calls % 3 == 0;
          Values in(dtype, count), out(dtype, count);
          for (int64_t i = 0; i < count; ++i) in.set(i, value_of(op, comm.rank(), i));
          Values& result = in_place ? in : out;
          comm.reduce(in.data(), is_root ? result.data() : nullptr, count, dtype, op, root, "x")
              ->wait();
          int64_t wrong = 0;
          for (int64_t i = 0; is_root && i < count; ++i)
            wrong += !is_reduced(result.get(i), op, dtype, size, i);
          for (int64_t i = 0; !is_root && i < count; ++i)
            wrong += in.get(i) != value_of(op, comm.rank(), i);
          CAPTURE(size);
          CAPTURE(count);
          CAPTURE(root);
          CAPTURE(name_of(dtype));
          CAPTURE(name_of(op));
          CHECK(wrong == 0);
        }
  });
}

TEST_CASE("gather puts everybody's elements in rank order at the root, in place and not") {
  everywhere([&](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    for (int root = 0; root < size; ++root)
      for (const DType dtype : {DType::kU8, DType::kF64})
        for (const int64_t count : counts_for(dtype, size, kSlots)) {
          const bool is_root = rank == root, in_place = is_root && count % 2 == 1;
          Values own(dtype, count), all(dtype, is_root ? count * size : 0);
          for (int64_t i = 0; i < count; ++i) {
            own.set(i, value_of(rank, i));
            if (in_place) all.set(count * rank + i, value_of(rank, i));
          }
          comm.gather(in_place ? all.at(count * rank) : own.data(), is_root ? all.data() : nullptr,
                      count, dtype, root, "x")
              ->wait();
          int64_t wrong = 0;
          for (int64_t i = 0; is_root && i < count * size; ++i)
            wrong += all.get(i) != value_of(int(i / count), i % count);
          CAPTURE(size);
          CAPTURE(count);
          CAPTURE(root);
          CHECK(wrong == 0);
        }
  });
}

TEST_CASE("scatter gives each rank its part of what the root has, in place and not") {
  everywhere([&](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    for (int root = 0; root < size; ++root)
      for (const DType dtype : {DType::kU8, DType::kF64})
        for (const int64_t count : counts_for(dtype, size, kSlots)) {
          const bool is_root = rank == root, in_place = is_root && count % 2 == 1;
          Values all(dtype, is_root ? count * size : 0), own(dtype, count);
          for (int64_t i = 0; is_root && i < count * size; ++i) all.set(i, value_of(root, i));
          comm.scatter(is_root ? all.data() : nullptr, in_place ? all.at(count * rank) : own.data(),
                       count, dtype, root, "x")
              ->wait();
          int64_t wrong = 0;
          for (int64_t i = 0; i < count; ++i)
            wrong += (in_place ? all.get(count * rank + i) : own.get(i)) !=
                     value_of(root, count * rank + i);
          CAPTURE(size);
          CAPTURE(count);
          CAPTURE(root);
          CHECK(wrong == 0);
        }
  });
}

TEST_CASE("all_to_all gives each rank what every rank has for it") {
  everywhere([&](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    for (const DType dtype : {DType::kU8, DType::kF64})
      for (const int64_t count : counts_for(dtype, size, kSlots)) {
        Values in(dtype, count * size), out(dtype, count * size);
        for (int64_t i = 0; i < count * size; ++i) in.set(i, value_of(rank, i));
        comm.all_to_all(in.data(), out.data(), count, dtype, "x")->wait();
        int64_t wrong = 0;
        for (int64_t i = 0; i < count * size; ++i)
          wrong += out.get(i) != value_of(int(i / count), count * rank + i % count);
        CAPTURE(size);
        CAPTURE(count);
        CHECK(wrong == 0);
      }
  });
}

TEST_CASE("long calls gather and hand out inside a host while their pieces are between hosts") {
  constexpr int64_t kCount = (2 << 19) + 5;  // of each rank: two pieces and a little
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
                         "reduce 'x': no root 2 in a group of 2", std::invalid_argument);
    CHECK_THROWS_WITH_AS(comm.gather(x, x, 2, DType::kF32, -1, "x"),
                         "gather 'x': no root -1 in a group of 2", std::invalid_argument);
    CHECK_THROWS_WITH_AS(comm.scatter(x, x, 2, DType::kF32, 5, "x"),
                         "scatter 'x': no root 5 in a group of 2", std::invalid_argument);
    CHECK_THROWS_WITH_AS(comm.all_to_all(x, x, -2, DType::kF32, "x"),
                         "all_to_all 'x': the count is -2", std::invalid_argument);
    comm.barrier("b")->wait();
  });
}
