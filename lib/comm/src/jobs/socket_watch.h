#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "groups/rank_context.h"
#include "segment/shared_job.h"
#include "smp/plan/system/file_descriptor.h"
#include "waiting/doorbell.h"

namespace smp::jobs {

// Detects the end of any other process of the job on this host, at its socket and at the process
// itself. It fails the job if that rank has died. A rank that leaves in good order says so on its
// board before its sockets close.
class SocketWatch final : public groups::PeerWatch {
 public:
  // `peers`: a socket to each rank, by rank; closed for ranks that are not on this host.
  SocketWatch(std::shared_ptr<segment::SharedJob> job, int rank,
              std::vector<system::FileDescriptor> peers);
  ~SocketWatch() override;

 private:
  void run();

  std::shared_ptr<segment::SharedJob> job_;
  const int rank_;
  std::vector<system::FileDescriptor> peers_;
  // Descriptors of the processes (pidfd). A child that a rank forked holds copies of the rank's
  // sockets, so these may stay open after the rank has died.
  std::vector<system::FileDescriptor> processes_;
  waiting::Doorbell stop_;
  std::thread thread_;
};

}  // namespace smp::jobs
