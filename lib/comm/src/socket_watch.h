#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "descriptor.h"
#include "doorbell.h"
#include "job.h"
#include "seat.h"

namespace smp::shm {

// Waits for the end of any other process of the job on this host, at its socket and at the process
// itself. One that left in good order has said so in its board before its sockets closed.
class SocketWatch final : public PeerWatch {
 public:
  // `peers`: a socket to each rank, by rank; none where there is no such rank here.
  SocketWatch(std::shared_ptr<Job> job, int rank, std::vector<Descriptor> peers);
  ~SocketWatch() override;

 private:
  void run();

  std::shared_ptr<Job> job_;
  const int rank_;
  std::vector<Descriptor> peers_;
  // A child that a rank forked holds copies of its sockets: they may stay open when it dies.
  std::vector<Descriptor> processes_;
  Doorbell stop_;
  std::thread thread_;
};

}  // namespace smp::shm
