#include "rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "job.h"
#include "local_socket.h"
#include "proof.h"

namespace smp::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kGreeting = 0x314f4c4c45484d53;  // "SMHELLO1": the protocol's version is in it
constexpr milliseconds kHandshakeLimit{2000};       // so that a silent stranger holds nobody up

struct Hello {  // from the rank that connects
  uint64_t greeting = kGreeting;
  int32_t rank = 0, size = 0;
  Nonce nonce{};
};
struct Answer {
  uint64_t greeting = kGreeting;
  int32_t rank = 0, size = 0;
  Nonce nonce{};
  Mac proof{};
};
struct Verdict {
  int32_t accepted = 0;
};

class Meet {
 public:
  Meet(const SharedMemoryOptions& options, const std::vector<int>& here)
      : options_(options), here_(here), deadline_(steady_clock::now() + options.timeout) {}

  Meeting run() {
    peers_.resize(size_t(options_.size));
    const Descriptor listener = listen();
    std::optional<Mapping> mapping;
    if (options_.rank == here_.front()) {
      mapping.emplace(Mapping::memfd(Job::bytes(options_.size)));
      memfd_ = mapping->fd();
      Job::prepare(*mapping, options_.size);
    }
    for (const int rank : here_)
      if (rank < options_.rank) connect_to(rank);
    while (has_missing()) accept_from(listener);
    if (options_.rank != here_.front()) mapping.emplace(Mapping::of_fd(received_.give()));
    mapping->close_fd();
    return Meeting{std::move(*mapping), std::move(peers_)};
  }

 private:
  std::string name_of_socket(int rank) const {
    return fmt::format("smp/{}/{}", options_.job_id, rank);
  }

  [[noreturn]] void fail(CommError::Kind kind, int culprit, const std::string& text) const {
    throw CommError(kind, culprit, fmt::format("rank {}: {}", options_.rank, text));
  }

  Descriptor listen() const {
    try {
      return listen_at(name_of_socket(options_.rank));
    } catch (const std::system_error& e) {
      if (e.code() != std::errc::address_in_use) throw;
      fail(CommError::Kind::kMismatch, options_.rank,
           fmt::format("another live process is rank {} of job '{}' already", options_.rank,
                       options_.job_id));
    }
  }

  // Who proves what to whom, so that a proof fits nowhere else.
  Mac proof(const char* side, const Hello& hello, const Answer& answer) const {
    std::string message = fmt::format("{} {} {}/{} {}/{} ", side, options_.job_id, hello.rank,
                                      hello.size, answer.rank, answer.size);
    message.append(hello.nonce.begin(), hello.nonce.end());
    message.append(answer.nonce.begin(), answer.nonce.end());
    return authenticate(options_.job_key, message);
  }

  bool same_user(const Descriptor& socket) const { return user_of_peer(socket) == geteuid(); }

  void connect_to(int rank) {
    Descriptor socket;
    while (!(socket = try_connect(name_of_socket(rank)))) {
      check_connected();
      if (steady_clock::now() > deadline_) timed_out({rank});
      std::this_thread::sleep_for(milliseconds(2));
    }
    if (!same_user(socket))
      fail(CommError::Kind::kMismatch, rank,
           fmt::format("rank {} of job '{}' belongs to another user", rank, options_.job_id));
    Hello hello;
    hello.rank = options_.rank;
    hello.size = options_.size;
    hello.nonce = make_nonce();
    Answer answer;
    if (!send_all(socket, &hello, sizeof(hello)) ||
        !receive_all(socket, &answer, sizeof(answer), deadline_)) {
      if (steady_clock::now() > deadline_) timed_out({rank});
      lost(rank);
    }
    if (answer.greeting != kGreeting || answer.rank != rank)
      fail(CommError::Kind::kMismatch, rank,
           fmt::format("rank {} of job '{}' runs another version of smp", rank, options_.job_id));
    if (answer.size != options_.size)
      fail(CommError::Kind::kMismatch, rank,
           fmt::format("this job has {} ranks, but rank {} was told {}", options_.size, rank,
                       answer.size));
    if (!equal(answer.proof, proof("answer", hello, answer)))
      fail(CommError::Kind::kMismatch, options_.rank,
           fmt::format("rank {} of job '{}' has another job key", rank, options_.job_id));
    const Mac mine = proof("hello", hello, answer);
    Verdict verdict;
    if (!send_all(socket, &mine, sizeof(mine)) ||
        !receive_all(socket, &verdict, sizeof(verdict), deadline_, &received_))
      lost(rank);
    if (!verdict.accepted || (rank == here_.front() && !received_))
      fail(CommError::Kind::kMismatch, options_.rank,
           fmt::format("rank {} of job '{}' has refused this process: rank {} is here already",
                       rank, options_.job_id, options_.rank));
    peers_[size_t(rank)] = std::move(socket);
  }

  // Waits for one more connection; one that does not prove that it belongs here is dropped.
  void accept_from(const Descriptor& listener) {
    if (!wait_readable(listener, std::min(deadline_, steady_clock::now() + milliseconds(100)))) {
      check_connected();
      if (steady_clock::now() > deadline_) timed_out(missing());
      return;
    }
    Descriptor socket = accept_one(listener);
    if (!socket || !same_user(socket)) return;
    const auto limit = std::min(deadline_, steady_clock::now() + kHandshakeLimit);
    Hello hello;
    if (!receive_all(socket, &hello, sizeof(hello), limit) || hello.greeting != kGreeting) return;
    Answer answer;
    answer.rank = options_.rank;
    answer.size = options_.size;
    answer.nonce = make_nonce();
    answer.proof = proof("answer", hello, answer);
    Mac theirs;
    if (!send_all(socket, &answer, sizeof(answer)) ||
        !receive_all(socket, &theirs, sizeof(theirs), limit) ||
        !equal(theirs, proof("hello", hello, answer)))
      return;
    Verdict verdict;
    verdict.accepted = hello.size == options_.size && hello.rank > options_.rank &&
                       std::binary_search(here_.begin(), here_.end(), hello.rank) &&
                       !peers_[size_t(hello.rank)];
    const int memfd = verdict.accepted ? memfd_ : -1;
    if (!send_all(socket, &verdict, sizeof(verdict), memfd) || !verdict.accepted) return;
    peers_[size_t(hello.rank)] = std::move(socket);
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (const int rank : here_)
      if (rank != options_.rank && !peers_[size_t(rank)]) ranks.push_back(rank);
    return ranks;
  }
  bool has_missing() const { return !missing().empty(); }

  void check_connected() const {
    for (int rank = 0; rank < options_.size; ++rank)
      if (peers_[size_t(rank)] && closed_by_peer(peers_[size_t(rank)])) lost(rank);
  }

  [[noreturn]] void lost(int rank) const {
    fail(CommError::Kind::kPeerLost, rank,
         fmt::format("rank {} of job '{}' went away while the ranks came together", rank,
                     options_.job_id));
  }

  [[noreturn]] void timed_out(const std::vector<int>& ranks) const {
    fail(CommError::Kind::kTimeout, ranks.front(),
         fmt::format("{} {} of job '{}' did not come within {:g} s",
                     ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "), options_.job_id,
                     std::chrono::duration<double>(options_.timeout).count()));
  }

  const SharedMemoryOptions& options_;
  const std::vector<int>& here_;
  const Deadline deadline_;
  std::vector<Descriptor> peers_;
  int memfd_ = -1;
  Descriptor received_;
};

}  // namespace

Meeting meet(const SharedMemoryOptions& options, const std::vector<int>& here) {
  return Meet(options, here).run();
}

}  // namespace smp::shm
