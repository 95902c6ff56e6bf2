#include "smp/comm/shared_memory.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "descriptor.h"
#include "job.h"
#include "rendezvous.h"
#include "seat.h"

namespace smp {
namespace {

using namespace shm;

// Waits for the end of any other process of the job. One that left in good order has said so in its
// board before its sockets closed.
class SocketWatch final : public PeerWatch {
 public:
  SocketWatch(std::shared_ptr<Job> job, int rank, std::vector<Descriptor> peers)
      : job_(std::move(job)),
        rank_(rank),
        peers_(std::move(peers)),
        stop_(eventfd(0, EFD_CLOEXEC)) {
    if (!stop_) throw std::system_error(errno, std::generic_category(), "eventfd");
    thread_ = std::thread([this] { run(); });
  }

  ~SocketWatch() override {
    const uint64_t one = 1;
    while (::write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
    // Not only closed: a child that somebody forked may hold copies.
    for (const Descriptor& peer : peers_)
      if (peer) shutdown(peer.get(), SHUT_RDWR);
  }

 private:
  void run() {
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

  std::shared_ptr<Job> job_;
  const int rank_;
  std::vector<Descriptor> peers_;
  Descriptor stop_;
  std::thread thread_;
};

void check(const SharedMemoryOptions& options) {
  if (options.size < 1 || options.size > kMaxRanks)
    throw std::invalid_argument(fmt::format("a job of {} ranks on one host: 1 to {} are possible",
                                            options.size, kMaxRanks));
  if (options.rank < 0 || options.rank >= options.size)
    throw std::invalid_argument(
        fmt::format("no rank {} in a job of {} ranks", options.rank, options.size));
  if (options.job_id.empty() || options.job_id.size() > 64)
    throw std::invalid_argument("the job id must have 1 to 64 characters");
  if (options.job_key.empty()) throw std::invalid_argument("the job key is empty");
}

}  // namespace

std::unique_ptr<Communicator> connect_shared_memory(const SharedMemoryOptions& options) {
  check(options);
  Meeting meeting = meet(options);
  auto job = std::make_shared<Job>(std::move(meeting.mapping), options.size);
  auto seat = std::make_shared<Seat>(job, options.rank, options.timeout);
  if (options.size > 1)
    seat->watch = std::make_unique<SocketWatch>(job, options.rank, std::move(meeting.peers));
  return make_world(std::move(seat));
}

}  // namespace smp
