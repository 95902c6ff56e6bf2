#include "bootstrap/host_meeting.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>

#include "bootstrap/entrance.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/letter.h"
#include "bootstrap/packed.h"
#include "bootstrap/tcp_socket.h"
#include "net/nearest_card.h"
#include "smp/comm/bootstrap/host_identity.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/mesh/collective.h"

namespace smp::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kGreeting = 0x3754454e45484d53;  // "SMHENET7"
std::string own_host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string pack(const Card& card) {
  Packer packer;
  packer.add(uint64_t(card.rank));
  packer.add(uint64_t(card.door));
  for (const std::string* text :
       {&card.host_identity, &card.host_name, &card.address, &card.settings, &card.endpoint})
    packer.add(*text);
  return packer.bytes;
}

Card unpack_card(const std::string& bytes) {
  Unpacker unpacker(bytes);
  Card card;
  card.rank = int(unpacker.number());
  card.door = int(unpacker.number());
  for (std::string* text :
       {&card.host_identity, &card.host_name, &card.address, &card.settings, &card.endpoint})
    *text = unpacker.text();
  return card;
}

class MeetHosts {
 public:
  MeetHosts(const Participant& self, const net::FabricOptions& options)
      : self_(self), options_(options), entrance_(self, kGreeting, "card") {}

  HostMeeting run() {
    if (self_.rank == 0) {
      receive_all_ranks();
    } else {
      join();
    }
    return std::move(meeting_);
  }

 private:
  // Opens the network at the interface that the rule says, and writes this rank's card.
  Card own_card(const std::string& towards_master) {
    const bool by_rule = !options_.subnet.empty();
    Card card;
    card.rank = self_.rank;
    std::vector<Interface> rails = {{"", towards_master, {}}};
    if (by_rule) rails = interfaces_in(options_.subnet, own_interfaces());
    const Interface& rail = own_rail(rails, net::own_numa_node(), options_.local_rank);
    card.address = rail.address;
    card.host_name = own_host_name();
    meeting_.door = listen_tcp(card.address, 0);
    card.door = local_port_of(meeting_.door);
    card.host_identity =
        options_.host_identity.empty() ? own_host_identity() : options_.host_identity;
    meeting_.network = net::open_ofi_transport(card.address, options_.provider, options_.protocol,
                                               options_.local_rank);
    const net::OpenedTransport& network = meeting_.network;
    const net::ExchangeRule& exchange = options_.exchange;
    card.settings = fmt::format(
        "provider {}, protocol {}, messages of {} bytes, {} credits, exchange {}", network.provider,
        name_of(network.protocol), mesh::kMessageBytes, mesh::kCredits,
        exchange.pinned ? std::string(name_of(*exchange.pinned))
                        : "by " + net::text_of(exchange.network()));
    card.endpoint = network.transport->address();
    if (options_.report) options_.report(line_of(card, rails, rail));
    return card;
  }

  // What the network is and why, in one line.
  std::string line_of(const Card& card, const std::vector<Interface>& rails,
                      const Interface& rail) const {
    const net::OpenedTransport& network = meeting_.network;
    const std::string why = rails.size() > 1 ? fmt::format("{}, one of {} in {}", rail.name,
                                                           rails.size(), options_.subnet)
                            : !options_.subnet.empty() ? fmt::format("in {}", options_.subnet)
                                                       : "from where rank 0 is reached";
    const std::string place =
        network.is_of_ip
            ? fmt::format("at {} ({})", card.address, why)
            : fmt::format("by addresses of its own (the ranks meet at {}, {})", card.address, why);
    const net::ExchangeRule& exchange = options_.exchange;
    const std::string exchanges =
        exchange.pinned
            ? fmt::format("{} (as {} says)", name_of(*exchange.pinned), env::kFabricExchange)
            : fmt::format("by {} ({})", exchange.cost_of, net::text_of(exchange.network()));
    std::string caution = network.caution;
    const bool is_tcp = network.is_of_ip && network.provider != "verbs;ofi_rxm";
    if (is_tcp && options_.provider.empty()) caution = unused_cards(card.address, own_interfaces());
    return fmt::format(
        "between hosts: provider {} of libfabric {} {}; protocol {} ({}); exchange {}{}{}{}",
        network.provider, network.version, place, name_of(network.protocol), network.why_protocol,
        exchanges, network.card.empty() ? "" : fmt::format("; card {}", network.card),
        network.why.empty() ? "" : fmt::format("; not: {}", network.why),
        caution.empty() ? "" : fmt::format("; {}", caution));
  }

  void finish(const std::vector<std::string>& cards, const std::string& session) {
    for (const std::string& card : cards) meeting_.cards.push_back(unpack_card(card));
    const Mac mac = authenticate(self_.job_key, "messages " + self_.job_id + session);
    memcpy(&meeting_.secret, mac.data(), sizeof(meeting_.secret));
    std::vector<std::string> endpoints;
    for (const Card& card : meeting_.cards)
      endpoints.push_back(card.rank == self_.rank ? "" : card.endpoint);
    meeting_.network.transport->set_peers(endpoints);
  }

  // Rank 0.
  void receive_all_ranks() {
    const waiting::Descriptor listener = listen_tcp(options_.master_address, options_.master_port);
    if (options_.listening) options_.listening(local_port_of(listener));
    for (int rank = 0; rank < self_.size; ++rank)
      guests_.push_back({{}, Handshake(self_, kGreeting), "", ""});
    cards_.resize(size_t(self_.size));
    cards_[0] = pack(own_card(local_address_of(listener)));
    try {
      while (!missing().empty()) accept_from(listener);
      compare_settings();
    } catch (const comm::CommError& error) {
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
    if (const int deaf = tell_all(letter.bytes); deaf >= 0) self_.lost(deaf);
    for (Entrance::Guest& guest : guests_) meeting_.sockets.push_back(std::move(guest.socket));
    finish(cards_, session);
  }

  // The last rank that could not be told; -1.
  int tell_all(const std::string& letter) const {
    int deaf = -1;
    for (const Entrance::Guest& guest : guests_)
      if (guest.socket && !send_letter(guest.socket, "table", guest.handshake, letter))
        deaf = guest.handshake.guest();
    return deaf;
  }

  // Waits for one more connection; one that does not prove that it belongs here is dropped.
  void accept_from(const waiting::Descriptor& listener) {
    auto guest =
        entrance_.next(listener, std::min(self_.deadline, steady_clock::now() + milliseconds(100)));
    if (!guest) {
      for (int rank = 1; rank < self_.size; ++rank) {
        const waiting::Descriptor& socket = guests_[size_t(rank)].socket;
        if (socket && closed_by_peer(socket)) self_.lost(rank);
      }
      if (self_.is_late()) self_.timed_out(missing(), entrance_.strangers());
      return;
    }
    const int rank = guest->handshake.guest();
    if (rank < 1 || rank >= self_.size || guest->handshake.guest_size() != self_.size)
      return entrance_.refuse(guest->origin);
    if (guests_[size_t(rank)].socket) {
      Packer letter;
      letter.add(std::string("no"));
      letter.add(uint64_t(comm::CommError::Kind::kMismatch));
      letter.add(uint64_t(rank));
      letter.add(fmt::format("rank 0 of job '{}' has refused this process: rank {} is here already",
                             self_.job_id, rank));
      send_letter(guest->socket, "table", guest->handshake, letter.bytes);
      return;
    }
    cards_[size_t(rank)] = std::move(guest->letter);
    guests_[size_t(rank)] = std::move(*guest);
  }

  void compare_settings() const {
    const Card first = unpack_card(cards_[0]);
    for (const std::string& bytes : cards_) {
      const Card card = unpack_card(bytes);
      if (card.settings != first.settings)
        self_.fail(comm::CommError::Kind::kMismatch, card.rank,
                   fmt::format("rank {} on {} ({}) has {}, but rank 0 has {}", card.rank,
                               card.host_name, card.address, card.settings, first.settings));
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < self_.size; ++rank)
      if (!guests_[size_t(rank)].socket) ranks.push_back(rank);
    return ranks;
  }

  // What rank 0 says to this rank's card, by a socket that stays open. It hangs up on who has not
  // proved yet that it belongs here when too many strangers come: then this rank comes again, as
  // long as somebody listens there.
  std::string show(const std::string& card, waiting::Descriptor& socket) const {
    for (bool has_come = false;; std::this_thread::sleep_for(milliseconds(20))) {
      bool is_refused = false;
      socket = try_connect_tcp(options_.master_address, options_.master_port, self_.deadline,
                               &is_refused);
      if (self_.is_late()) self_.timed_out({0});
      if (has_come && is_refused) self_.lost(0);
      if (!socket) continue;
      has_come = true;
      prepare(socket, self_.deadline);
      Handshake handshake(self_, kGreeting);
      if (!handshake.greet(socket, 0) || !send_letter(socket, "card", handshake, card)) continue;
      if (auto letter = receive_letter(socket, "table", handshake, self_.deadline))
        return std::move(*letter);
    }
  }

  // The other ranks. Opening the network takes a moment, in which rank 0 shall not wait for one of
  // them alone.
  void join() {
    const std::string card =
        pack(own_card(local_address_towards(options_.master_address, options_.master_port)));
    waiting::Descriptor socket;
    const std::string letter = show(card, socket);
    Unpacker unpacker(letter);
    if (unpacker.text() == "no") {
      const auto kind = comm::CommError::Kind(unpacker.number());
      const auto culprit = int(uint32_t(unpacker.number()));
      throw comm::CommError(kind, culprit, fmt::format("rank {}: {}", self_.rank, unpacker.text()));
    }
    const std::string session = unpacker.text();
    std::vector<std::string> cards;
    for (int rank = 0; rank < self_.size; ++rank) cards.push_back(unpacker.text());
    meeting_.sockets.push_back(std::move(socket));
    finish(cards, session);
  }

  const Participant& self_;
  const net::FabricOptions& options_;
  std::vector<Entrance::Guest> guests_;
  Entrance entrance_;
  std::vector<std::string> cards_;
  HostMeeting meeting_;
};

}  // namespace

HostMeeting meet_hosts(const Participant& self, const net::FabricOptions& options) {
  return MeetHosts(self, options).run();
}

}  // namespace smp::bootstrap
