#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp::testing {

// Every operation once, with what it must give.
inline void some_of_everything(comm::Communicator& comm, int64_t count) {
  const int size = comm.size(), rank = comm.rank();
  std::vector<int32_t> all(size_t(count * size)), own(static_cast<size_t>(count), rank + 1);
  comm.all_gather(own.data(), all.data(), count, DType::kI32, "g")->wait();
  for (int r = 0; r < size; ++r) {
    CAPTURE(size);
    CAPTURE(rank);
    CAPTURE(r);
    CAPTURE(count);
    CHECK(all[size_t(r * count)] == r + 1);
  }
  std::vector<int32_t> part(static_cast<size_t>(count));
  comm.reduce_scatter(all.data(), part.data(), count * size, DType::kI32, comm::ReduceOp::kSum, "s")
      ->wait();
  CHECK(part[0] == (rank + 1) * size);
  CHECK(part.back() == (rank + 1) * size);
  comm.all_reduce(own.data(), own.data(), count, DType::kI32, comm::ReduceOp::kSum, "r")->wait();
  CHECK(own[0] == size * (size + 1) / 2);
  CHECK(own.back() == size * (size + 1) / 2);
  std::vector<int32_t> root(static_cast<size_t>(count), rank == size - 1 ? 42 : 0);
  comm.broadcast(root.data(), count, DType::kI32, size - 1, "b")->wait();
  CHECK(root.back() == 42);
  std::vector<int32_t> got(static_cast<size_t>(count));
  const comm::WorkPtr out = comm.send(part.data(), count, DType::kI32, (rank + 1) % size, "m");
  comm.recv(got.data(), count, DType::kI32, (rank + size - 1) % size, "m")->wait();
  out->wait();
  CHECK(got.back() == ((rank + size - 1) % size + 1) * size);
  int32_t sum = rank + 1, here = -1;
  comm.reduce(&sum, &here, 1, DType::kI32, comm::ReduceOp::kProduct, 0, "p")->wait();
  CHECK(here == (rank == 0 ? std::tgamma(size + 1) : -1));
  comm.gather(own.data(), all.data(), count, DType::kI32, size - 1, "g")->wait();
  comm.scatter(all.data(), got.data(), count, DType::kI32, size - 1, "s")->wait();
  CHECK(got == own);
  comm.all_to_all(std::vector<int32_t>(size_t(count * size), rank).data(), all.data(), count,
                  DType::kI32, "t")
      ->wait();
  for (int r = 0; r < size; ++r) CHECK(all[size_t(r * count + count - 1)] == r);
  comm.barrier("e")->wait();
}

}  // namespace smp::testing
