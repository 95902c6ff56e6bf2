#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/fabric_rendezvous.h"
#include "groups/rank_context.h"
#include "segment/shared_job.h"
#include "smp/plan/system/file_descriptor.h"
#include "waiting/doorbell.h"
#include "waiting/observation.h"

namespace smp::jobs {

// Watches over the ranks of all hosts, with a thread of its own and the sockets to rank 0. Every
// rank sends rank 0 a heartbeat twice a second, and rank 0 sends one to all. A rank sends what it
// learns to rank 0, which forwards it to all: a failure, an abort, a rank that has left.
class HostWatch final : public groups::PeerWatch, public segment::RemoteHosts {
 public:
  HostWatch(groups::RankContext& context, std::vector<bootstrap::PeerAddress> peers,
            std::vector<system::FileDescriptor> sockets, std::chrono::milliseconds silence);
  ~HostWatch() override;

  std::string place_of(int rank) const override;
  void failed(const segment::FailureRecord& record, const segment::Failure& failure) override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class MessageKind : uint32_t { kHeartbeat, kFailure, kLeft };
  struct FailureNotice {
    uint64_t key;  // of the group that has failed; 0: the whole job
    segment::Failure failure;
  };
  struct PeerConnection {  // to one other rank
    system::FileDescriptor socket;
    int rank = 0;
    std::string received;
    Clock::time_point last_heard;
    bool open = true;  // messages may still arrive
  };

  bool is_hub() const { return rank_ == 0; }
  void run();
  void read(PeerConnection& peer);
  void on_message(PeerConnection& peer, MessageKind kind, const std::string& payload);
  void on_closed(PeerConnection& peer);
  void fail_malformed(PeerConnection& peer);
  void check_silent();
  void tell(PeerConnection& peer, MessageKind kind, const std::string& payload);
  void tell_others(MessageKind kind, const std::string& payload, int except = -1);
  bool may_leave() const;
  void forward_local_failure();

  groups::RankContext& context_;
  const std::shared_ptr<segment::SharedJob> job_;
  const int rank_;
  const std::vector<bootstrap::PeerAddress> addresses_;
  const std::chrono::milliseconds silence_;
  std::vector<PeerConnection> connections_;
  waiting::Doorbell bell_;
  std::mutex mutex_;
  std::deque<FailureNotice> notices_;  // failures found here, to be sent
  bool has_forwarded_ = false;         // the job's failure, sent or received by this rank
  std::atomic<bool> leaving_{false};
  waiting::Observation lingering_;  // of rank 0, for messages that arrive while it leaves
  std::thread thread_;
};

}  // namespace smp::jobs
