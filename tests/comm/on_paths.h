#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "comm/times.h"
#include "smp/comm/fabric.h"
#include "smp/comm/job_environment.h"
#include "smp/comm/shared_memory.h"

// Four ranks that make one call on one of the paths that bytes take, for what breaks them there.
namespace smp::testing {

inline constexpr int kRanks = 4, kPerHost = 2;
inline constexpr int64_t kCount = 30000;  // of each rank's part

enum class Path { kStaged, kDirect, kBetweenHosts };
inline constexpr Path kPaths[] = {Path::kStaged, Path::kDirect, Path::kBetweenHosts};

inline const char* name_of(Path path) {
  switch (path) {
    case Path::kStaged: return "private memory";
    case Path::kDirect: return "symmetric memory";
    case Path::kBetweenHosts: break;
  }
  return "libfabric, 2 hosts x 2";
}

inline constexpr const char* kCalls[] = {"all_reduce", "all_gather", "reduce_scatter",
                                         "broadcast",  "all_to_all", "send"};

inline void make(const std::string& call, Communicator& comm, float* in, float* out,
                 int64_t count = kCount) {
  const DType f32 = DType::kF32;
  const int64_t all = count * kRanks;
  if (call == "all_reduce") comm.all_reduce(in, out, all, f32, ReduceOp::kSum, "x")->wait();
  if (call == "all_gather") comm.all_gather(in, out, count, f32, "x")->wait();
  if (call == "reduce_scatter") comm.reduce_scatter(in, out, all, f32, ReduceOp::kSum, "x")->wait();
  if (call == "broadcast") comm.broadcast(out, all, f32, 1, "x")->wait();
  if (call == "all_to_all") comm.all_to_all(in, out, count, f32, "x")->wait();
  if (call == "send") {
    const WorkPtr sent = comm.send(in, count, f32, (comm.rank() + 1) % kRanks, "x");
    comm.recv(out, count, f32, (comm.rank() + kRanks - 1) % kRanks, "x")->wait();
    sent->wait();
  }
}

inline std::unique_ptr<Communicator> connect_on(Path path, int rank, const std::string& job_id,
                                                int port, std::chrono::milliseconds timeout) {
  const auto with = [&](auto options) {
    options.rank = rank;
    options.size = kRanks;
    options.job_id = job_id;
    options.job_key = "the key of the tests";
    options.timeout = timeout;
    return options;
  };
  if (path != Path::kBetweenHosts) return connect_shared_memory(with(SharedMemoryOptions()));
  FabricOptions options = with(FabricOptions());
  options.master_address = "127.0.0.1";
  options.master_port = port;
  options.host_identity = fmt::format("host {}", rank / kPerHost);
  options.protocol = read_fabric_protocol();
  return connect_fabric(options);
}

// Whether ranks of several hosts can be tried here.
inline bool is_here(Path path) {
  const char* const provider = std::getenv("SMP_FABRIC_PROVIDER");
  return path != Path::kBetweenHosts || provider == nullptr || std::string(provider) != "none";
}

inline int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace smp::testing
