#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "smp/comm/jobs/thread_group.h"

// Ranks that each make a call of their own, and what they hear.
namespace smp::testing {

using Step = std::function<void(comm::Communicator&)>;

inline Step sum_of(int64_t count, DType dtype, comm::ReduceOp op, const char* label) {
  return [=](comm::Communicator& comm) {
    std::vector<std::byte> in(size_t(count * bytes_of(dtype))), out(in.size());
    comm.all_reduce(in.data(), out.data(), count, dtype, op, label)->wait();
  };
}
inline Step gather_of(int64_t count, DType dtype, const char* label) {
  return [=](comm::Communicator& comm) {
    std::vector<std::byte> in(size_t(count * bytes_of(dtype)));
    std::vector<std::byte> out(in.size() * size_t(comm.size()));
    comm.all_gather(in.data(), out.data(), count, dtype, label)->wait();
  };
}
inline Step broadcast_of(int64_t count, int root, const char* label) {
  return [=](comm::Communicator& comm) {
    std::vector<float> x(static_cast<size_t>(count));
    comm.broadcast(x.data(), count, DType::kF32, root, label)->wait();
  };
}
inline Step send_of(int64_t count, DType dtype, int peer, const char* label) {
  return [=](comm::Communicator& comm) {
    std::vector<std::byte> x(size_t(count * bytes_of(dtype)));
    comm.send(x.data(), count, dtype, peer, label)->wait();
    comm.barrier("after")->wait();
  };
}
inline Step recv_of(int64_t count, DType dtype, int peer, const char* label) {
  return [=](comm::Communicator& comm) {
    std::vector<std::byte> x(size_t(count * bytes_of(dtype)));
    comm.recv(x.data(), count, dtype, peer, label)->wait();
  };
}

// What each rank's CommError says when each makes its own call.
inline std::vector<std::string> errors_of(const std::vector<Step>& calls,
                                          std::chrono::milliseconds timeout) {
  std::vector<std::string> errors(calls.size());
  std::atomic<int> ended{0};
  jobs::run_ranks(int(calls.size()),
                  [&](comm::Communicator& comm) {
                    try {
                      calls[size_t(comm.rank())](comm);
                    } catch (const comm::CommError& e) {
                      errors[size_t(comm.rank())] = text_of(e);
                    }
                    ended.fetch_add(1);
                    while (ended.load() < comm.size())
                      std::this_thread::yield();  // nobody leaves before
                  },
                  {timeout});
  return errors;
}

}  // namespace smp::testing
