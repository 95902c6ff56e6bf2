#include "jobs/socket_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "smp/plan/system/signals_blocked.h"
#include "smp/rendezvous/sockets/unix_socket.h"

namespace smp::jobs {

SocketWatch::SocketWatch(std::shared_ptr<segment::SharedJob> job, int rank,
                         std::vector<system::FileDescriptor> peers)
    : job_(std::move(job)),
      rank_(rank),
      peers_(std::move(peers)),
      stop_(waiting::Doorbell::make()) {
  for (const system::FileDescriptor& peer : peers_)
    processes_.push_back(peer ? sockets::process_of_peer(peer) : system::FileDescriptor());
  thread_ = system::start_without_signals([this] { run(); });
}

SocketWatch::~SocketWatch() {
  stop_.ring();
  thread_.join();
  // shutdown(), because a forked child may hold copies of the sockets.
  for (const system::FileDescriptor& peer : peers_)
    if (peer) shutdown(peer.number(), SHUT_RDWR);
}

void SocketWatch::run() {
  std::vector<pollfd> events;
  std::vector<int> ranks;
  for (int rank = 0; rank < int(peers_.size()); ++rank) {
    const system::FileDescriptor& peer = peers_[size_t(rank)];
    if (!peer) continue;
    for (const int fd : {peer.number(), processes_[size_t(rank)].number()}) {
      events.push_back({fd, POLLIN, 0});  // poll ignores negative ones
      ranks.push_back(rank);
    }
  }
  events.push_back({stop_.descriptor(), POLLIN, 0});
  for (;;) {
    if (poll(events.data(), nfds_t(events.size()), -1) < 0 && errno != EINTR) return;
    if (events.back().revents != 0) return;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (events[i].revents == 0) continue;
      const bool is_socket = i % 2 == 0;
      char byte;
      if (is_socket && recv(events[i].fd, &byte, 1, MSG_DONTWAIT) > 0) continue;
      events[i].fd = -1;
      if (job_->board(ranks[i]).gone.load() != 0) continue;
      job_->board(ranks[i]).died.store(1);
      job_->fail(job_->failure(), {comm::CommError::Kind::kPeerLost, ranks[i], rank_,
                                   fmt::format("rank {} died", ranks[i])});
    }
  }
}

}  // namespace smp::jobs
