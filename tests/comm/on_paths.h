#pragma once

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "comm/fabric_ranks.h"
#include "comm/network.h"
#include "comm/processes.h"
#include "comm/times.h"
#include "smp/comm/jobs/fabric.h"
#include "smp/comm/jobs/shared_memory.h"

// Ranks that make one call on one of the paths that bytes take, for what breaks them there.
namespace smp::testing {

inline constexpr int kNumbersOfRanks[] = {2, 3, 4, 5, 8}, kMostRanks = 8;
inline constexpr int64_t kCount = 30000;  // of each rank's part

// Two on each host, but for the last of an odd number; two ranks are on two hosts.
inline int host_of(int rank, int ranks) { return ranks == 2 ? rank : rank / 2; }

enum class Path { kStaged, kDirect, kBetweenHosts };
inline constexpr Path kPaths[] = {Path::kStaged, Path::kDirect, Path::kBetweenHosts};

inline std::string name_of(Path path) {
  switch (path) {
    case Path::kStaged: return "private memory";
    case Path::kDirect: return "symmetric memory";
    case Path::kBetweenHosts: break;
  }
  return "libfabric";
}

// All, and those of all ranks.
inline constexpr std::array<const char*, 11> kCalls = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce",
    "gather",     "scatter",    "barrier",        "split",     "send"};
inline constexpr std::span<const char* const> kCallsOfAll = std::span(kCalls).first(10);

// What its errors call it: a new group is only heard of by its first call.
inline std::string name_in_errors(const std::string& call) {
  return call == "split" ? "barrier" : call;
}

inline void make(const std::string& call, comm::Communicator& comm, float* in, float* out,
                 int64_t count = kCount) {
  const DType f32 = DType::kF32;
  const int size = comm.size(), next = (comm.rank() + 1) % size;
  const int before = (comm.rank() + size - 1) % size;
  const int64_t all = count * size;
  if (call == "all_reduce") comm.all_reduce(in, out, all, f32, comm::ReduceOp::kSum, "x")->wait();
  if (call == "all_gather") comm.all_gather(in, out, count, f32, "x")->wait();
  if (call == "reduce_scatter")
    comm.reduce_scatter(in, out, all, f32, comm::ReduceOp::kSum, "x")->wait();
  if (call == "broadcast") comm.broadcast(out, all, f32, 1, "x")->wait();
  if (call == "all_to_all") comm.all_to_all(in, out, count, f32, "x")->wait();
  float* const at_root = comm.rank() == 1 ? out : nullptr;
  if (call == "reduce") comm.reduce(in, at_root, all, f32, comm::ReduceOp::kSum, 1, "x")->wait();
  if (call == "gather") comm.gather(in, at_root, count, f32, 1, "x")->wait();
  if (call == "scatter")
    comm.scatter(comm.rank() == 1 ? in : nullptr, out, count, f32, 1, "x")->wait();
  if (call == "barrier") comm.barrier("x")->wait();
  if (call == "split") {
    std::vector<int> members(static_cast<size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    comm.split(members)->barrier("x")->wait();
  }
  if (call == "send") {
    const comm::WorkPtr sent = comm.send(in, count, f32, next, "x");
    comm.recv(out, count, f32, before, "x")->wait();
    sent->wait();
  }
}

inline std::unique_ptr<comm::Communicator> connect_on(Path path, int rank, int ranks,
                                                      const std::string& job_id, int port,
                                                      std::chrono::milliseconds timeout) {
  if (path != Path::kBetweenHosts) {
    jobs::SharedMemoryOptions options = options_of(rank, ranks, job_id);
    options.timeout = timeout;
    return jobs::connect_shared_memory(options);
  }
  net::FabricOptions options = options_of(rank, ranks, 1, job_id, port);
  options.timeout = timeout;
  options.host_identity = fmt::format("host {}", host_of(rank, ranks));
  return jobs::connect_fabric(options);
}

// Whether ranks of several hosts can be tried here.
inline bool is_here(Path path) { return path != Path::kBetweenHosts || has_network(); }

// ... and whether the others live on when one of them dies.
inline bool may_die_on(Path path) {
  return is_here(path) && (path != Path::kBetweenHosts || outlives_deaths());
}

inline int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace smp::testing
