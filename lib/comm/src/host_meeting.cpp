#include "host_meeting.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <thread>

#include "packed.h"
#include "proof.h"
#include "smp/plan/collective.h"
#include "tcp_socket.h"

namespace smp::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kGreeting = 0x3154454e45484d53;  // "SMHENET1": the protocol's version is in it
constexpr milliseconds kHandshakeLimit{2000};       // so that a silent stranger holds nobody up
constexpr uint32_t kMostBytes = 16 << 20;

struct Hello {  // from the rank that connects
  uint64_t greeting = kGreeting;
  int32_t rank = 0, size = 0;
  Nonce nonce{};
};
struct Answer {
  uint64_t greeting = kGreeting;
  int32_t size = 0, unused = 0;
  Nonce nonce{};
  Mac proof{};
};
struct LetterHead {  // then so many bytes
  uint32_t bytes = 0;
  Mac proof{};
};

// Where ranks can share memory: one kernel, one network namespace, in which the abstract names of
// their sockets are valid.
std::string own_host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = {};
  if (boot.empty() || readlink("/proc/self/ns/net", space, sizeof(space) - 1) < 0)
    throw std::runtime_error("cannot tell which host this is: /proc is not there");
  return boot + " " + space;
}

std::string own_host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string pack(const Card& card) {
  Packer packer;
  packer.add(uint64_t(card.rank));
  for (const std::string* text :
       {&card.host_identity, &card.host_name, &card.address, &card.settings, &card.endpoint})
    packer.add(*text);
  return packer.bytes;
}

Card unpack_card(const std::string& bytes) {
  Unpacker unpacker(bytes);
  Card card;
  card.rank = int(unpacker.number());
  for (std::string* text :
       {&card.host_identity, &card.host_name, &card.address, &card.settings, &card.endpoint})
    *text = unpacker.text();
  return card;
}

class MeetHosts {
 public:
  explicit MeetHosts(const FabricOptions& options)
      : options_(options), deadline_(steady_clock::now() + options.timeout) {}

  HostMeeting run() {
    if (options_.rank == 0) {
      receive_all_ranks();
    } else {
      join();
    }
    return std::move(meeting_);
  }

 private:
  [[noreturn]] void fail(CommError::Kind kind, int culprit, const std::string& text) const {
    throw CommError(kind, culprit, fmt::format("rank {}: {}", options_.rank, text));
  }

  // Who proves what to whom, so that a proof fits nowhere else.
  Mac proof(const char* what, const Hello& hello, const Answer& answer,
            const std::string& bytes = "") const {
    std::string message =
        fmt::format("{} {} {}/{} {} ", what, options_.job_id, hello.rank, hello.size, answer.size);
    message.append(hello.nonce.begin(), hello.nonce.end());
    message.append(answer.nonce.begin(), answer.nonce.end());
    return authenticate(options_.job_key, message + bytes);
  }

  bool send_letter(const Descriptor& socket, const char* what, const Hello& hello,
                   const Answer& answer, const std::string& bytes) const {
    LetterHead head;
    head.bytes = uint32_t(bytes.size());
    head.proof = proof(what, hello, answer, bytes);
    std::string all(reinterpret_cast<const char*>(&head), sizeof(head));
    all += bytes;
    return send_all(socket, all.data(), all.size());
  }

  // Nothing when the other end went away, or does not know the key.
  std::optional<std::string> receive_letter(const Descriptor& socket, const char* what,
                                            const Hello& hello, const Answer& answer,
                                            Deadline deadline) const {
    LetterHead head;
    if (!receive_all(socket, &head, sizeof(head), deadline) || head.bytes > kMostBytes)
      return std::nullopt;
    std::string bytes(head.bytes, '\0');
    if (!receive_all(socket, bytes.data(), bytes.size(), deadline) ||
        !equal(head.proof, proof(what, hello, answer, bytes)))
      return std::nullopt;
    return bytes;
  }

  // Opens the network at the interface that the rule says, and writes this rank's card.
  Card own_card(const std::string& towards_master) {
    const bool by_rule = !options_.subnet.empty();
    Card card;
    card.rank = options_.rank;
    card.address = by_rule ? address_in(options_.subnet) : towards_master;
    card.host_name = own_host_name();
    card.host_identity =
        options_.host_identity.empty() ? own_host_identity() : options_.host_identity;
    meeting_.network = open_ofi_transport(card.address, options_.provider);
    const OpenedTransport& network = meeting_.network;
    card.settings = fmt::format("provider {}, messages of {} bytes, {} credits", network.provider,
                                kMessageBytes, kCredits);
    card.endpoint = network.transport->address();
    if (options_.report)
      options_.report(fmt::format(
          "between hosts: provider {} of libfabric {} at {} ({}){}", network.provider,
          network.version, card.address,
          by_rule ? fmt::format("in {}", options_.subnet) : "from where rank 0 is reached",
          network.why.empty() ? "" : fmt::format("; not: {}", network.why)));
    return card;
  }

  void finish(const std::vector<std::string>& cards, const std::string& session) {
    for (const std::string& card : cards) meeting_.cards.push_back(unpack_card(card));
    const Mac mac = authenticate(options_.job_key, "messages " + options_.job_id + session);
    memcpy(&meeting_.secret, mac.data(), sizeof(meeting_.secret));
    std::vector<std::string> endpoints;
    for (const Card& card : meeting_.cards)
      endpoints.push_back(card.rank == options_.rank ? "" : card.endpoint);
    meeting_.network.transport->set_peers(endpoints);
  }

  // Rank 0.
  void receive_all_ranks() {
    const Descriptor listener = listen_tcp(options_.master_address, options_.master_port);
    guests_.resize(size_t(options_.size));
    cards_.resize(size_t(options_.size));
    cards_[0] = pack(own_card(local_address_of(listener)));
    try {
      while (!missing().empty()) accept_from(listener);
      compare_settings();
    } catch (const CommError& error) {
      Packer letter;
      letter.add(std::string("no"));
      letter.add(uint64_t(error.kind));
      letter.add(uint64_t(uint32_t(error.culprit)));
      letter.add(std::string(error.what()));
      tell_all(letter.bytes);
      throw;
    }
    const Nonce nonce = make_nonce();
    const std::string session(nonce.begin(), nonce.end());
    Packer letter;
    letter.add(std::string("yes"));
    letter.add(session);
    for (const std::string& card : cards_) letter.add(card);
    tell_all(letter.bytes);
    for (Guest& guest : guests_) meeting_.sockets.push_back(std::move(guest.socket));
    finish(cards_, session);
  }

  void tell_all(const std::string& letter) const {
    for (const Guest& guest : guests_)
      if (guest.socket) send_letter(guest.socket, "table", guest.hello, guest.answer, letter);
  }

  // Waits for one more connection; one that does not prove that it belongs here is dropped.
  void accept_from(const Descriptor& listener) {
    if (!wait_readable(listener, std::min(deadline_, steady_clock::now() + milliseconds(100)))) {
      for (int rank = 1; rank < options_.size; ++rank) {
        const Descriptor& socket = guests_[size_t(rank)].socket;
        if (socket && closed_by_peer(socket)) lost(rank);
      }
      if (steady_clock::now() > deadline_) timed_out(missing());
      return;
    }
    Guest guest;
    guest.socket = accept_one(listener);
    if (!guest.socket) return;
    prepare(guest.socket, deadline_);
    const auto limit = std::min(deadline_, steady_clock::now() + kHandshakeLimit);
    if (!receive_all(guest.socket, &guest.hello, sizeof(guest.hello), limit) ||
        guest.hello.greeting != kGreeting)
      return;
    guest.answer.size = options_.size;
    guest.answer.nonce = make_nonce();
    guest.answer.proof = proof("answer", guest.hello, guest.answer);
    if (!send_all(guest.socket, &guest.answer, sizeof(guest.answer))) return;
    // The network of a rank takes a moment to open.
    const auto card = receive_letter(guest.socket, "card", guest.hello, guest.answer,
                                     std::min(deadline_, limit + 2 * kHandshakeLimit));
    const int rank = guest.hello.rank;
    if (!card || rank < 1 || rank >= options_.size || guest.hello.size != options_.size) return;
    if (guests_[size_t(rank)].socket) {
      Packer letter;
      letter.add(std::string("no"));
      letter.add(uint64_t(CommError::Kind::kMismatch));
      letter.add(uint64_t(rank));
      letter.add(fmt::format("rank 0 of job '{}' has refused this process: rank {} is here already",
                             options_.job_id, rank));
      send_letter(guest.socket, "table", guest.hello, guest.answer, letter.bytes);
      return;
    }
    cards_[size_t(rank)] = *card;
    guests_[size_t(rank)] = std::move(guest);
  }

  void compare_settings() const {
    const Card first = unpack_card(cards_[0]);
    for (const std::string& bytes : cards_) {
      const Card card = unpack_card(bytes);
      if (card.settings != first.settings)
        fail(CommError::Kind::kMismatch, card.rank,
             fmt::format("rank {} on {} ({}) has {}, but rank 0 has {}", card.rank, card.host_name,
                         card.address, card.settings, first.settings));
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.size; ++rank)
      if (!guests_[size_t(rank)].socket) ranks.push_back(rank);
    return ranks;
  }

  // The other ranks.
  void join() {
    Descriptor socket;
    while (!(socket = try_connect_tcp(options_.master_address, options_.master_port, deadline_))) {
      if (steady_clock::now() > deadline_) timed_out({0});
      std::this_thread::sleep_for(milliseconds(20));
    }
    prepare(socket, deadline_);
    Hello hello;
    hello.rank = options_.rank;
    hello.size = options_.size;
    hello.nonce = make_nonce();
    Answer answer;
    if (!send_all(socket, &hello, sizeof(hello)) ||
        !receive_all(socket, &answer, sizeof(answer), deadline_))
      steady_clock::now() > deadline_ ? timed_out({0}) : lost(0);
    if (answer.greeting != kGreeting)
      fail(CommError::Kind::kMismatch, 0,
           fmt::format("rank 0 of job '{}' runs another version of smp", options_.job_id));
    if (answer.size != options_.size)
      fail(
          CommError::Kind::kMismatch, 0,
          fmt::format("this job has {} ranks, but rank 0 was told {}", options_.size, answer.size));
    if (!equal(answer.proof, proof("answer", hello, answer)))
      fail(CommError::Kind::kMismatch, options_.rank,
           fmt::format("rank 0 of job '{}' has another job key", options_.job_id));
    if (!send_letter(socket, "card", hello, answer, pack(own_card(local_address_of(socket)))))
      lost(0);
    const auto letter = receive_letter(socket, "table", hello, answer, deadline_);
    if (!letter) steady_clock::now() > deadline_ ? timed_out({0}) : lost(0);
    Unpacker unpacker(*letter);
    if (unpacker.text() == "no") {
      const auto kind = CommError::Kind(unpacker.number());
      const auto culprit = int(uint32_t(unpacker.number()));
      throw CommError(kind, culprit, fmt::format("rank {}: {}", options_.rank, unpacker.text()));
    }
    const std::string session = unpacker.text();
    std::vector<std::string> cards;
    for (int rank = 0; rank < options_.size; ++rank) cards.push_back(unpacker.text());
    meeting_.sockets.push_back(std::move(socket));
    finish(cards, session);
  }

  [[noreturn]] void lost(int rank) const {
    fail(CommError::Kind::kPeerLost, rank,
         fmt::format("rank {} of job '{}' went away while the ranks came together", rank,
                     options_.job_id));
  }

  [[noreturn]] void timed_out(const std::vector<int>& ranks) const {
    fail(CommError::Kind::kTimeout, ranks.front(),
         fmt::format("{} {} of job '{}' did not come to {} port {} within {:g} s",
                     ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "), options_.job_id,
                     options_.master_address, options_.master_port,
                     std::chrono::duration<double>(options_.timeout).count()));
  }

  struct Guest {
    Descriptor socket;
    Hello hello;
    Answer answer;
  };

  const FabricOptions& options_;
  const Deadline deadline_;
  std::vector<Guest> guests_;
  std::vector<std::string> cards_;
  HostMeeting meeting_;
};

}  // namespace

HostMeeting meet_hosts(const FabricOptions& options) { return MeetHosts(options).run(); }

}  // namespace smp::shm
