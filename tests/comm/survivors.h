#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/times.h"
#include "smp/comm/communicator.h"

// What the ranks that are left do after a failure.
namespace smp::testing {

// Every rank's part in a sum, and in groups of two of them.
inline void use(comm::Communicator& comm) {
  std::vector<float> x(50000, 1);
  comm.all_reduce(x.data(), x.data(), 50000, DType::kF32, comm::ReduceOp::kSum, "x")->wait();
  if (x.back() != float(comm.size())) throw std::logic_error("a wrong sum");
  if (comm.size() < 2 || comm.rank() > 1) return;
  const auto pair = comm.split({0, 1});
  pair->barrier("p")->wait();
}

// Runs what fails; then who is left, who find each other long before the time for it is over.
inline comm::Survivors shrink_after(comm::Communicator& comm,
                                    const std::function<void(comm::Communicator&)>& failing) {
  try {
    comm.barrier("start")->wait();
    for (;;) failing(comm);
  } catch (const comm::CommError&) {
  }
  const auto begin = std::chrono::steady_clock::now();
  comm::Survivors rest = comm.shrink(kNever);
  use(*rest.world);
  if (std::chrono::steady_clock::now() - begin > kSoon) throw std::logic_error("it took long");
  return rest;
}

inline std::string go_on_after(comm::Communicator& comm,
                               const std::function<void(comm::Communicator&)>& failing) {
  const comm::Survivors rest = shrink_after(comm, failing);
  use(*rest.world);
  rest.world->barrier("end")->wait();
  return fmt::format("{} went on", fmt::join(rest.former, " "));
}

}  // namespace smp::testing
