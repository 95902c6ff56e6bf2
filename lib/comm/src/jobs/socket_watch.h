#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "groups/seat.h"
#include "segment/job.h"
#include "waiting/descriptor.h"
#include "waiting/doorbell.h"

namespace smp::jobs {

// Notices the end of any other process of the job on this host, at its socket and at the process
// itself, and fails the job if that rank has died. A rank that leaves in good order says so on its
// board before its sockets close.
class SocketWatch final : public groups::PeerWatch {
 public:
  // `peers`: a socket to each rank, by rank; none where there is no such rank here.
  SocketWatch(std::shared_ptr<segment::Job> job, int rank, std::vector<waiting::Descriptor> peers);
  ~SocketWatch() override;

 private:
  void run();

  std::shared_ptr<segment::Job> job_;
  const int rank_;
  std::vector<waiting::Descriptor> peers_;
  // Descriptors of the processes (pidfd), since a child that a rank forked holds copies of its
  // sockets: they may stay open when the rank dies.
  std::vector<waiting::Descriptor> processes_;
  waiting::Doorbell stop_;
  std::thread thread_;
};

}  // namespace smp::jobs
