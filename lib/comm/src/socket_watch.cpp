#include "socket_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace smp::shm {

SocketWatch::SocketWatch(std::shared_ptr<Job> job, int rank, std::vector<Descriptor> peers)
    : job_(std::move(job)), rank_(rank), peers_(std::move(peers)), stop_(eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = std::thread([this] { run(); });
}

SocketWatch::~SocketWatch() {
  const uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
  // Not only closed: a child that somebody forked may hold copies.
  for (const Descriptor& peer : peers_)
    if (peer) shutdown(peer.get(), SHUT_RDWR);
}

void SocketWatch::run() {
  std::vector<pollfd> events;
  std::vector<int> ranks;
  for (int rank = 0; rank < int(peers_.size()); ++rank) {
    if (!peers_[size_t(rank)]) continue;
    events.push_back({peers_[size_t(rank)].get(), POLLIN, 0});
    ranks.push_back(rank);
  }
  events.push_back({stop_.get(), POLLIN, 0});
  for (;;) {
    if (poll(events.data(), nfds_t(events.size()), -1) < 0 && errno != EINTR) return;
    if (events.back().revents != 0) return;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (events[i].revents == 0) continue;
      char byte;
      if (recv(events[i].fd, &byte, 1, MSG_DONTWAIT) > 0) continue;
      events[i].fd = -1;  // poll passes over it
      if (job_->board(ranks[i]).gone.load() == 0)
        job_->fail(job_->failure(), {CommError::Kind::kPeerLost, ranks[i], rank_,
                                     fmt::format("rank {} died", ranks[i])});
    }
  }
}

}  // namespace smp::shm
