#include "jobs/host_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <stdexcept>

#include "bootstrap/packed.h"
#include "smp/plan/system/signals_blocked.h"

namespace smp::jobs {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeat{500};
constexpr milliseconds kLinger{1000};  // rank 0, for the others to say that they leave, or why
constexpr uint32_t kMostLetterBytes = 64 << 10;  // far more than any error's text

std::string letter_of(uint64_t key, const segment::Failure& failure) {
  bootstrap::Packer letter;
  letter.add(key);
  letter.add(uint64_t(failure.kind));
  letter.add(uint64_t(uint32_t(failure.culprit)));
  letter.add(uint64_t(uint32_t(failure.finder)));
  letter.add(failure.text.substr(0, kMostLetterBytes / 2));
  return letter.bytes;
}

}  // namespace

HostWatch::HostWatch(groups::Seat& seat, std::vector<bootstrap::Card> cards,
                     std::vector<waiting::Descriptor> sockets, milliseconds silence)
    : seat_(seat),
      job_(seat.job),
      rank_(seat.engine.rank()),
      cards_(std::move(cards)),
      silence_(silence),
      bell_(waiting::Doorbell::make()) {
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (!sockets[i]) continue;
    Line line;
    line.socket = std::move(sockets[i]);
    line.rank = is_hub() ? int(i) : 0;
    line.heard = Clock::now();
    lines_.push_back(std::move(line));
  }
  job_->set_outside(this);
  thread_ = system::start_without_signals([this] { run(); });
}

HostWatch::~HostWatch() {
  job_->set_outside(nullptr);
  leaving_.store(true);
  bell_.ring();
  thread_.join();
  // Not only closed: a child that somebody forked may hold copies.
  for (const Line& line : lines_) shutdown(line.socket.get(), SHUT_RDWR);
}

std::string HostWatch::place_of(int rank) const {
  if (rank < 0 || rank >= int(cards_.size())) return "";
  const bootstrap::Card& card = cards_[size_t(rank)];
  return fmt::format(" (rank {} is on {}, {})", rank, card.host_name, card.address);
}

void HostWatch::failed(const segment::FailureRecord& record, const segment::Failure& failure) {
  uint64_t key = 0;  // of the whole job
  if (&record != &job_->failure()) {
    const auto known = seat_.group_failures.key_of(record);
    if (!known) return;  // a group inside this host
    key = *known;
  }
  {
    std::lock_guard guard(mutex_);
    news_.push_back({key, failure});
  }
  bell_.ring();
}

bool HostWatch::may_leave() const {
  const bool alone =
      std::none_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.open; });
  return !is_hub() || alone || has_passed_on_ || lingering_.looked_for() >= kLinger;
}

// What another rank of its host has found rank 0 knows from their memory, by which it may leave
// before that rank's word has come.
void HostWatch::pass_on_what_is_known_here() {
  if (!is_hub() || has_passed_on_ || job_->failure().state.load() == segment::FailureRecord::kNone)
    return;
  if (const auto failure = job_->read(job_->failure()))
    tell_others(Word::kFailure, letter_of(0, *failure));
  has_passed_on_ = true;
}

void HostWatch::run() {
  auto beat = Clock::now();
  bool told = false;  // that this rank leaves
  for (;;) {
    // Before the news are taken: none comes after it, so whoever leaves has told all.
    const bool leaving = leaving_.load();
    std::deque<News> news;
    {
      std::lock_guard guard(mutex_);
      news.swap(news_);
    }
    for (const auto& [key, failure] : news) {
      tell_others(Word::kFailure, letter_of(key, failure));
      has_passed_on_ |= key == 0;
    }
    pass_on_what_is_known_here();
    if (leaving) lingering_.look(Clock::now());
    if (leaving && !std::exchange(told, true)) {
      bootstrap::Packer letter;
      letter.add(uint64_t(rank_));
      tell_others(Word::kLeft, letter.bytes);
    }
    if (leaving && may_leave()) return;
    if (const auto now = Clock::now(); now >= beat) {
      beat = now + kBeat;
      tell_others(Word::kHere, progress::load(job_->board(rank_).last_call));
    }
    std::vector<pollfd> events;
    for (const Line& line : lines_)
      events.push_back({line.open ? line.socket.get() : -1, POLLIN, 0});
    events.push_back({bell_.descriptor(), POLLIN, 0});
    const auto left = leaving_.load() ? milliseconds(10) : kBeat / 2;
    const auto asleep = Clock::now();
    if (poll(events.data(), nfds_t(events.size()), int(left.count())) < 0 && errno != EINTR) return;
    // Time in which this rank was itself stopped, most likely there, does not count.
    if (const auto slept = Clock::now() - asleep; slept > 2 * kBeat)
      for (Line& line : lines_) line.heard += slept;
    if (events.back().revents != 0) bell_.answer();
    for (size_t i = 0; i < lines_.size(); ++i)
      if (events[i].revents != 0) read(lines_[i]);
    if (!leaving_.load()) look_for_silent();
  }
}

void HostWatch::read(Line& line) {
  char bytes[4096];
  const ssize_t n = recv(line.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return ended(line);
  line.heard = Clock::now();
  line.received.append(bytes, size_t(n));
  for (;;) {
    uint32_t head[2];  // word, bytes of its letter
    if (line.received.size() < sizeof(head)) return;
    memcpy(head, line.received.data(), sizeof(head));
    if (head[1] > kMostLetterBytes) return garbled(line);
    if (line.received.size() < sizeof(head) + head[1]) return;
    const std::string letter = line.received.substr(sizeof(head), head[1]);
    line.received.erase(0, sizeof(head) + head[1]);
    try {
      hear(line, Word(head[0]), letter);
    } catch (const std::runtime_error&) {
      return garbled(line);
    }
  }
}

void HostWatch::garbled(Line& line) {
  line.open = false;
  job_->fail(job_->failure(),
             {comm::CommError::Kind::kMismatch, line.rank, rank_,
              fmt::format("rank {} sent what no rank of this version of smp says", line.rank)});
}

void HostWatch::hear(Line& line, Word word, const std::string& letter) {
  switch (word) {
    case Word::kHere:  // said before its first call it may come after that
      if (!letter.empty()) progress::store(job_->board(line.rank).last_call, letter);
      return;
    case Word::kLeft: {
      bootstrap::Unpacker unpacker(letter);
      const uint64_t rank = unpacker.number();
      if (rank >= cards_.size()) throw std::runtime_error("no such rank");
      job_->board(int(rank)).gone.store(1);
      // Rank 0 itself may still have something to hand on.
      if (int(rank) == line.rank && is_hub()) line.open = false;
      if (is_hub()) tell_others(Word::kLeft, letter, line.rank);
      return;
    }
    case Word::kFailure: {
      bootstrap::Unpacker unpacker(letter);
      const uint64_t key = unpacker.number();
      segment::Failure failure;
      failure.kind = comm::CommError::Kind(unpacker.number());
      failure.culprit = int(uint32_t(unpacker.number()));
      failure.finder = int(uint32_t(unpacker.number()));
      failure.text = unpacker.text();
      if (is_hub()) tell_others(Word::kFailure, letter, line.rank);
      has_passed_on_ |= key == 0;
      if (key == 0)
        job_->write(job_->failure(), failure, rank_);
      else
        seat_.group_failures.write(*job_, key, failure);
      return;
    }
  }
  throw std::runtime_error("no such word");
}

void HostWatch::ended(Line& line) {
  line.open = false;
  if (job_->board(line.rank).gone.load() == 0)
    job_->fail(job_->failure(), {comm::CommError::Kind::kPeerLost, line.rank, rank_,
                                 fmt::format("rank {} died", line.rank)});
}

void HostWatch::look_for_silent() {
  const auto now = Clock::now();
  auto silent = [&](const Line& line, milliseconds limit) {
    return line.open && now - line.heard > limit && job_->board(line.rank).gone.load() == 0;
  };
  for (Line& line : lines_) {
    if (!silent(line, silence_)) continue;
    const bootstrap::Card& card = cards_[size_t(line.rank)];
    const double seconds = std::chrono::duration<double>(silence_).count();
    std::vector<int> ranks;  // of its host, all as silent
    for (const Line& other : lines_) {
      if (cards_[size_t(other.rank)].host_identity != card.host_identity) continue;
      if (!silent(other, silence_ - 2 * kBeat)) {
        ranks.clear();
        break;
      }
      ranks.push_back(other.rank);
    }
    std::string text;
    if (!is_hub()) {
      text = fmt::format(
          "rank 0 has not been heard of for {:g} s: it is stopped, its host is "
          "down, or this host is cut off",
          seconds);
    } else if (ranks.empty()) {
      text = fmt::format("rank {} has not been heard of for {:g} s: it is stopped", line.rank,
                         seconds);
    } else {
      text = fmt::format(
          "host {} ({}) with {} {} has not been heard of for {:g} s: it is down, "
          "stopped or cut off",
          card.host_name, card.address, ranks.size() == 1 ? "rank" : "ranks",
          fmt::join(ranks, ", "), seconds);
    }
    line.open = false;
    job_->fail(job_->failure(), {comm::CommError::Kind::kPeerLost, line.rank, rank_, text});
  }
}

// Never waits: a line that takes no more words is one of a rank that will be found silent.
void HostWatch::tell(Line& line, Word word, const std::string& letter) {
  const uint32_t head[2] = {uint32_t(word), uint32_t(letter.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof(head));
  bytes += letter;
  const ssize_t n =
      ::send(line.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0 && size_t(n) < bytes.size()) shutdown(line.socket.get(), SHUT_WR);  // no half words
}

// Whoever has said that it leaves may still listen: rank 0 does, and must not take the end of a
// line for a death because the other rank heard of its leaving first.
void HostWatch::tell_others(Word word, const std::string& letter, int except) {
  for (Line& line : lines_)
    if (line.rank != except && (line.open || word != Word::kHere)) tell(line, word, letter);
}

}  // namespace smp::jobs
