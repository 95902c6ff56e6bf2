#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/participant.h"
#include "smp/comm/communicator.h"
#include "smp/plan/system/file_descriptor.h"
#include "smp/rendezvous/handshake/acceptor.h"

namespace smp::bootstrap {

// Communicator::shrink: the ranks that are left of a failed job form a new one. Each rank listens
// for this from the beginning. The lowest rank that is left accepts the others, decides who goes
// on, and tells them where. They then rendezvous as the ranks of a job of its own. No rank that may
// have died is needed.
class Regroup {
 public:
  virtual ~Regroup() = default;
  comm::Survivors run(std::chrono::milliseconds limit);  // see Communicator::shrink

 protected:
  struct ConnectAttempt {
    system::FileDescriptor socket;  // to a rank; empty if it did not accept
    bool is_gone = false;           // its process has ended
  };
  struct RendezvousAddress {  // where the new rank 0 listens
    std::string address;
    int port = 0;
  };
  struct NextJob {  // of the new job
    int rank = 0, size = 1;
    std::string job_id;
    RendezvousAddress address;
    std::chrono::milliseconds limit;
  };

  Regroup(const Participant& self, system::FileDescriptor listener)
      : self_(self), listener_(std::move(listener)) {}
  const Participant& self() const { return self_; }

  virtual ConnectAttempt attempt_connect(int rank, sockets::Deadline deadline) = 0;
  virtual RendezvousAddress rendezvous_address() = 0;  // of this rank's listener, closed before
  virtual std::unique_ptr<comm::Communicator> start_job(const NextJob& next) = 0;

 private:
  using milliseconds = std::chrono::milliseconds;

  std::optional<std::string> ask(int rank, sockets::Deadline answer_by, sockets::Deadline end);
  comm::Survivors gather_ranks(sockets::Deadline end);
  void accept_next(handshake::Acceptor& acceptor,
                   std::vector<handshake::Acceptor::AcceptedPeer>& accepted, std::set<int>& missing,
                   sockets::Deadline end);
  void remove_dead(std::set<int>& missing);
  comm::Survivors start_next_job(const std::vector<int>& members, const RendezvousAddress& address);

  Participant self_;
  system::FileDescriptor listener_;
  std::set<int> gone_;
};

}  // namespace smp::bootstrap
