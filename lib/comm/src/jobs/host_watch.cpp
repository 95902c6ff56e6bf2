#include "jobs/host_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <stdexcept>

#include "smp/plan/system/signals_blocked.h"
#include "smp/rendezvous/wire/payload.h"

namespace smp::jobs {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHeartbeatEvery{500};
constexpr milliseconds kLinger{1000};  // for rank 0, while the other ranks report that they leave
constexpr uint32_t kMostPayloadBytes = 64 << 10;  // more than any text of an error

std::string payload_of(uint64_t key, const segment::Failure& failure) {
  return wire::PayloadWriter()
      .number(key)
      .number(uint64_t(failure.kind))
      .number(uint64_t(uint32_t(failure.culprit)))
      .number(uint64_t(uint32_t(failure.finder)))
      .text(failure.text.substr(0, kMostPayloadBytes / 2))
      .bytes();
}

}  // namespace

HostWatch::HostWatch(groups::RankContext& context, std::vector<bootstrap::PeerAddress> peers,
                     std::vector<system::FileDescriptor> sockets, milliseconds silence)
    : context_(context),
      job_(context.job),
      rank_(context.engine.rank()),
      addresses_(std::move(peers)),
      silence_(silence),
      bell_(waiting::Doorbell::make()) {
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (!sockets[i]) continue;
    PeerConnection peer;
    peer.socket = std::move(sockets[i]);
    peer.rank = is_hub() ? int(i) : 0;
    peer.last_heard = Clock::now();
    connections_.push_back(std::move(peer));
  }
  job_->set_remote_hosts(this);
  thread_ = system::start_without_signals([this] { run(); });
}

HostWatch::~HostWatch() {
  job_->set_remote_hosts(nullptr);
  leaving_.store(true);
  bell_.ring();
  thread_.join();
  // shutdown(), because a forked child may hold copies of the sockets.
  for (const PeerConnection& peer : connections_) shutdown(peer.socket.number(), SHUT_RDWR);
}

std::string HostWatch::place_of(int rank) const {
  if (rank < 0 || rank >= int(addresses_.size())) return "";
  const bootstrap::PeerAddress& peer_address = addresses_[size_t(rank)];
  return fmt::format(" (rank {} is on {}, {})", rank, peer_address.host_name, peer_address.address);
}

void HostWatch::failed(const segment::FailureRecord& record, const segment::Failure& failure) {
  uint64_t key = 0;  // 0: the whole job
  if (&record != &job_->failure()) {
    const auto known = context_.group_failures.key_of(record);
    if (!known) return;  // a group inside this host
    key = *known;
  }
  {
    std::lock_guard guard(mutex_);
    notices_.push_back({key, failure});
  }
  bell_.ring();
}

bool HostWatch::may_leave() const {
  const bool alone = std::none_of(connections_.begin(), connections_.end(),
                                  [](const PeerConnection& peer) { return peer.open; });
  return !is_hub() || alone || has_forwarded_ || lingering_.observed_for() >= kLinger;
}

// Rank 0 reads failures found by other ranks of its host from shared memory. So it may leave before
// the message of such a rank has arrived.
void HostWatch::forward_local_failure() {
  if (!is_hub() || has_forwarded_ || job_->failure().state.load() == segment::FailureRecord::kNone)
    return;
  if (const auto failure = job_->read(job_->failure()))
    tell_others(MessageKind::kFailure, payload_of(0, *failure));
  has_forwarded_ = true;
}

void HostWatch::run() {
  auto beat = Clock::now();
  bool told = false;  // told rank 0 that this rank leaves
  for (;;) {
    // Read before the notices are taken, so that a rank that leaves has sent all its notices.
    const bool leaving = leaving_.load();
    std::deque<FailureNotice> notices;
    {
      std::lock_guard guard(mutex_);
      notices.swap(notices_);
    }
    for (const auto& [key, failure] : notices) {
      tell_others(MessageKind::kFailure, payload_of(key, failure));
      has_forwarded_ |= key == 0;
    }
    forward_local_failure();
    if (leaving) lingering_.observe(Clock::now());
    if (leaving && !std::exchange(told, true)) {
      tell_others(MessageKind::kLeft, wire::PayloadWriter().number(uint64_t(rank_)).bytes());
    }
    if (leaving && may_leave()) return;
    if (const auto now = Clock::now(); now >= beat) {
      beat = now + kHeartbeatEvery;
      tell_others(MessageKind::kHeartbeat, progress::load(job_->board(rank_).last_call));
    }
    std::vector<pollfd> events;
    for (const PeerConnection& peer : connections_)
      events.push_back({peer.open ? peer.socket.number() : -1, POLLIN, 0});
    events.push_back({bell_.descriptor(), POLLIN, 0});
    const auto left = leaving_.load() ? milliseconds(10) : kHeartbeatEvery / 2;
    const auto asleep = Clock::now();
    if (poll(events.data(), nfds_t(events.size()), int(left.count())) < 0 && errno != EINTR) return;
    // A stop of this rank, most likely in poll(), does not count as silence.
    if (const auto slept = Clock::now() - asleep; slept > 2 * kHeartbeatEvery)
      for (PeerConnection& peer : connections_) peer.last_heard += slept;
    if (events.back().revents != 0) bell_.answer();
    for (size_t i = 0; i < connections_.size(); ++i)
      if (events[i].revents != 0) read(connections_[i]);
    if (!leaving_.load()) check_silent();
  }
}

void HostWatch::read(PeerConnection& peer) {
  char bytes[4096];
  const ssize_t n = recv(peer.socket.number(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return on_closed(peer);
  peer.last_heard = Clock::now();
  peer.received.append(bytes, size_t(n));
  for (;;) {
    uint32_t head[2];  // kind, bytes of its payload
    if (peer.received.size() < sizeof(head)) return;
    memcpy(head, peer.received.data(), sizeof(head));
    if (head[1] > kMostPayloadBytes) return fail_malformed(peer);
    if (peer.received.size() < sizeof(head) + head[1]) return;
    const std::string payload = peer.received.substr(sizeof(head), head[1]);
    peer.received.erase(0, sizeof(head) + head[1]);
    try {
      on_message(peer, MessageKind(head[0]), payload);
    } catch (const std::runtime_error&) {
      return fail_malformed(peer);
    }
  }
}

void HostWatch::fail_malformed(PeerConnection& peer) {
  peer.open = false;
  job_->fail(job_->failure(), {comm::CommError::Kind::kMismatch, peer.rank, rank_,
                               fmt::format("rank {} sent a message of an unknown kind: install the "
                                           "same version of smp on all hosts",
                                           peer.rank)});
}

void HostWatch::on_message(PeerConnection& peer, MessageKind kind, const std::string& payload) {
  switch (kind) {
    case MessageKind::kHeartbeat:  // an early one may arrive after the first call
      if (!payload.empty()) progress::store(job_->board(peer.rank).last_call, payload);
      return;
    case MessageKind::kLeft: {
      wire::PayloadReader reader(payload);
      const uint64_t rank = reader.number();
      if (rank >= addresses_.size()) throw std::runtime_error("no such rank");
      job_->board(int(rank)).gone.store(1);
      // Rank 0 itself may still have notices to forward.
      if (int(rank) == peer.rank && is_hub()) peer.open = false;
      if (is_hub()) tell_others(MessageKind::kLeft, payload, peer.rank);
      return;
    }
    case MessageKind::kFailure: {
      wire::PayloadReader reader(payload);
      const uint64_t key = reader.number();
      segment::Failure failure;
      failure.kind = comm::CommError::Kind(reader.number());
      failure.culprit = reader.small_number();
      failure.finder = reader.small_number();
      failure.text = reader.text();
      if (is_hub()) tell_others(MessageKind::kFailure, payload, peer.rank);
      has_forwarded_ |= key == 0;
      if (key == 0)
        job_->write(job_->failure(), failure, rank_);
      else
        context_.group_failures.write(*job_, key, failure);
      return;
    }
  }
  throw std::runtime_error("no such word");
}

void HostWatch::on_closed(PeerConnection& peer) {
  peer.open = false;
  if (job_->board(peer.rank).gone.load() == 0)
    job_->fail(job_->failure(), {comm::CommError::Kind::kPeerLost, peer.rank, rank_,
                                 fmt::format("rank {} died", peer.rank)});
}

void HostWatch::check_silent() {
  const auto now = Clock::now();
  auto silent = [&](const PeerConnection& peer, milliseconds limit) {
    return peer.open && now - peer.last_heard > limit && job_->board(peer.rank).gone.load() == 0;
  };
  for (PeerConnection& peer : connections_) {
    if (!silent(peer, silence_)) continue;
    const bootstrap::PeerAddress& peer_address = addresses_[size_t(peer.rank)];
    const double seconds = std::chrono::duration<double>(silence_).count();
    std::vector<int> ranks;  // all silent ranks of its host
    for (const PeerConnection& other : connections_) {
      if (addresses_[size_t(other.rank)].host_identity != peer_address.host_identity) continue;
      if (!silent(other, silence_ - 2 * kHeartbeatEvery)) {
        ranks.clear();
        break;
      }
      ranks.push_back(other.rank);
    }
    std::string text;
    if (!is_hub()) {
      text = fmt::format(
          "rank 0 has sent nothing for {:g} s: rank 0 is stopped, its host is down, or the network "
          "to this host is cut",
          seconds);
    } else if (ranks.empty()) {
      text = fmt::format("rank {} has sent nothing for {:g} s: the rank is stopped", peer.rank,
                         seconds);
    } else {
      text = fmt::format(
          "host {} ({}) with {} {} has sent nothing for {:g} s: the host is down, stopped or cut "
          "off",
          peer_address.host_name, peer_address.address, ranks.size() == 1 ? "rank" : "ranks",
          fmt::join(ranks, ", "), seconds);
    }
    peer.open = false;
    job_->fail(job_->failure(), {comm::CommError::Kind::kPeerLost, peer.rank, rank_, text});
  }
}

// Never waits: a full socket belongs to a rank that will be found silent.
void HostWatch::tell(PeerConnection& peer, MessageKind kind, const std::string& payload) {
  const uint32_t head[2] = {uint32_t(kind), uint32_t(payload.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof(head));
  bytes += payload;
  const ssize_t n =
      ::send(peer.socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0 && size_t(n) < bytes.size())
    shutdown(peer.socket.number(), SHUT_WR);  // no part of a message
}

// A rank that has reported that it leaves may still listen, as rank 0 does. It must not take the
// end of a connection for a death, because the other rank may have learnt of its leaving first.
void HostWatch::tell_others(MessageKind kind, const std::string& payload, int except) {
  for (PeerConnection& peer : connections_)
    if (peer.rank != except && (peer.open || kind != MessageKind::kHeartbeat))
      tell(peer, kind, payload);
}

}  // namespace smp::jobs
