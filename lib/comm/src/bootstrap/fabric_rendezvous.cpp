#include "bootstrap/fabric_rendezvous.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>

#include "bootstrap/interfaces.h"
#include "net/nearest_nic.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/mesh/collective.h"
#include "smp/rendezvous/handshake/acceptor.h"
#include "smp/rendezvous/handshake/signed_message.h"
#include "smp/rendezvous/sockets/host_identity.h"
#include "smp/rendezvous/sockets/tcp_socket.h"
#include "smp/rendezvous/wire/payload.h"

namespace smp::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kProtocol = 0x3854454e45484d53;  // "SMHENET8"
constexpr milliseconds kConnectLimit{1000};         // of one try

std::string own_host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string pack(const PeerAddress& peer_address) {
  wire::PayloadWriter payload;
  payload.number(uint64_t(peer_address.rank)).number(uint64_t(peer_address.listener_port));
  for (const std::string* text :
       {&peer_address.host_identity, &peer_address.host_name, &peer_address.address,
        &peer_address.settings, &peer_address.endpoint})
    payload.text(*text);
  return payload.bytes();
}

PeerAddress unpack_address(const std::string& bytes) {
  wire::PayloadReader reader(bytes);
  PeerAddress peer_address;
  peer_address.rank = int(reader.number());
  peer_address.listener_port = int(reader.number());
  for (std::string* text : {&peer_address.host_identity, &peer_address.host_name,
                            &peer_address.address, &peer_address.settings, &peer_address.endpoint})
    *text = reader.text();
  return peer_address;
}

std::string refusal(comm::CommError::Kind kind, int culprit, const std::string& why) {
  return wire::PayloadWriter()
      .text("no")
      .number(uint64_t(kind))
      .number(uint64_t(uint32_t(culprit)))
      .text(why)
      .bytes();
}

class FabricRendezvousRun {
 public:
  FabricRendezvousRun(const Participant& self, const net::FabricOptions& options)
      : self_(self), options_(options), acceptor_(self, kProtocol, "address", self.deadline) {}

  FabricRendezvous run() {
    if (self_.rank == 0) {
      receive_all_ranks();
    } else {
      join();
    }
    return std::move(rendezvous_);
  }

 private:
  // Opens the network at the interface that the rule selects, and returns this rank's address.
  PeerAddress own_address(const std::string& towards_master) {
    const bool by_rule = !options_.subnet.empty();
    PeerAddress peer_address;
    peer_address.rank = self_.rank;
    std::vector<Interface> rails = {{"", towards_master, {}}};
    if (by_rule) rails = interfaces_in(options_.subnet, own_interfaces());
    const Interface& rail = own_rail(rails, net::own_numa_node(), options_.local_rank);
    peer_address.address = rail.address;
    peer_address.host_name = own_host_name();
    rendezvous_.listener = sockets::listen_tcp(peer_address.address, 0);
    peer_address.listener_port = sockets::local_port_of(rendezvous_.listener);
    peer_address.host_identity =
        options_.host_identity.empty() ? sockets::own_host_identity() : options_.host_identity;
    rendezvous_.network = net::open_ofi_transport(peer_address.address, options_.provider,
                                                  options_.protocol, options_.local_rank);
    const net::OpenedTransport& network = rendezvous_.network;
    const net::ExchangeRule& exchange = options_.exchange;
    peer_address.settings = fmt::format(
        "provider {}, protocol {}, messages of {} bytes, {} credits, exchange {}", network.provider,
        name_of(network.protocol), mesh::kMessageBytes, mesh::kCredits,
        exchange.pinned ? std::string(name_of(*exchange.pinned))
                        : "by " + net::text_of(exchange.network()));
    peer_address.endpoint = network.transport->address();
    if (options_.report) options_.report(line_of(peer_address, rails, rail));
    return peer_address;
  }

  // What the network is and why, in one line.
  std::string line_of(const PeerAddress& peer_address, const std::vector<Interface>& rails,
                      const Interface& rail) const {
    const net::OpenedTransport& network = rendezvous_.network;
    const std::string why = rails.size() > 1 ? fmt::format("{}, one of {} in {}", rail.name,
                                                           rails.size(), options_.subnet)
                            : !options_.subnet.empty() ? fmt::format("in {}", options_.subnet)
                                                       : "the interface towards rank 0";
    const std::string place =
        network.is_of_ip
            ? fmt::format("at {} ({})", peer_address.address, why)
            : fmt::format("at the addresses of the provider (the rendezvous is at {}, {})",
                          peer_address.address, why);
    const net::ExchangeRule& exchange = options_.exchange;
    const std::string exchanges =
        exchange.pinned
            ? fmt::format("{} (as {} says)", name_of(*exchange.pinned), env::kFabricExchange)
            : fmt::format("by {} ({})", exchange.cost_of, net::text_of(exchange.network()));
    std::string caution = network.caution;
    const bool is_tcp = network.is_of_ip && network.provider != "verbs;ofi_rxm";
    if (is_tcp && options_.provider.empty())
      caution = unused_nics(peer_address.address, own_interfaces());
    return fmt::format(
        "between hosts: provider {} of libfabric {} {}; protocol {} ({}); exchange {}{}{}{}",
        network.provider, network.version, place, name_of(network.protocol), network.why_protocol,
        exchanges, network.nic.empty() ? "" : fmt::format("; card {}", network.nic),
        network.why.empty() ? "" : fmt::format("; not: {}", network.why),
        caution.empty() ? "" : fmt::format("; {}", caution));
  }

  void finish(const std::vector<std::string>& peers, const std::string& session) {
    for (const std::string& peer_address : peers)
      rendezvous_.peers.push_back(unpack_address(peer_address));
    const Mac mac = authenticate(self_.job_key, "messages " + self_.job_id + session);
    memcpy(&rendezvous_.secret, mac.data(), sizeof(rendezvous_.secret));
    std::vector<std::string> endpoints;
    for (const PeerAddress& peer_address : rendezvous_.peers)
      endpoints.push_back(peer_address.rank == self_.rank ? "" : peer_address.endpoint);
    rendezvous_.network.transport->set_peers(endpoints);
  }

  // Rank 0.
  void receive_all_ranks() {
    const system::FileDescriptor listener =
        sockets::listen_tcp(options_.master_address, options_.master_port);
    if (options_.listening) options_.listening(sockets::local_port_of(listener));
    for (int rank = 0; rank < self_.size; ++rank)
      accepted_.push_back({{}, handshake::Handshake(self_, kProtocol), "", ""});
    addresses_.resize(size_t(self_.size));
    addresses_[0] = pack(own_address(sockets::local_address_of(listener)));
    try {
      while (!missing().empty()) accept_from(listener);
      compare_settings();
    } catch (const comm::CommError& error) {
      tell_all(refusal(error.kind, error.culprit, error.what()));
      throw;
    }
    const Nonce nonce = make_nonce();
    const std::string session(nonce.begin(), nonce.end());
    wire::PayloadWriter message;
    message.text("yes").text(session).list(addresses_);
    if (const int deaf = tell_all(message.bytes()); deaf >= 0) self_.lost(deaf);
    for (handshake::Acceptor::AcceptedPeer& peer : accepted_)
      rendezvous_.sockets.push_back(std::move(peer.socket));
    finish(addresses_, session);
  }

  // The last rank that could not be told; -1.
  int tell_all(const std::string& message) const {
    int deaf = -1;
    for (const handshake::Acceptor::AcceptedPeer& peer : accepted_)
      if (peer.socket && !handshake::send_signed(peer.socket, "table", peer.handshake, message))
        deaf = peer.handshake.peer_rank();
    return deaf;
  }

  // Waits for one more connection; one that does not prove that it belongs here is dropped.
  void accept_from(const system::FileDescriptor& listener) {
    auto peer =
        acceptor_.next(listener, std::min(self_.deadline, steady_clock::now() + milliseconds(100)));
    if (!peer) {
      for (int rank = 1; rank < self_.size; ++rank) {
        const system::FileDescriptor& socket = accepted_[size_t(rank)].socket;
        if (socket && sockets::closed_by_peer(socket)) self_.lost(rank);
      }
      if (self_.is_late()) self_.timed_out(missing(), acceptor_.rejected());
      return;
    }
    const int rank = peer->handshake.peer_rank();
    if (rank < 1 || rank >= self_.size || peer->handshake.peer_size() != self_.size)
      return acceptor_.reject(peer->origin);
    if (accepted_[size_t(rank)].socket) {
      handshake::send_signed(
          peer->socket, "table", peer->handshake,
          refusal(comm::CommError::Kind::kMismatch, rank,
                  fmt::format("rank 0 of job '{}' refused this process: rank {} has joined already",
                              self_.job_id, rank)));
      return;
    }
    addresses_[size_t(rank)] = std::move(peer->message);
    accepted_[size_t(rank)] = std::move(*peer);
  }

  void compare_settings() const {
    const PeerAddress first = unpack_address(addresses_[0]);
    for (const std::string& bytes : addresses_) {
      const PeerAddress peer_address = unpack_address(bytes);
      if (peer_address.settings != first.settings)
        self_.fail(comm::CommError::Kind::kMismatch, peer_address.rank,
                   fmt::format("rank {} on {} ({}) has {}, but rank 0 has {}", peer_address.rank,
                               peer_address.host_name, peer_address.address, peer_address.settings,
                               first.settings));
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < self_.size; ++rank)
      if (!accepted_[size_t(rank)].socket) ranks.push_back(rank);
    return ranks;
  }

  // Sends this rank's address to rank 0 and returns the answer, by a socket that stays open. Rank 0
  // drops connections that are not authenticated yet when too many come. Then this rank connects
  // again, as long as a process listens there.
  std::string exchange_addresses(const std::string& peer_address,
                                 system::FileDescriptor& socket) const {
    for (bool has_come = false;; std::this_thread::sleep_for(milliseconds(20))) {
      int error = 0;
      socket = sockets::try_connect_tcp(
          options_.master_address, options_.master_port,
          std::min(self_.deadline, steady_clock::now() + kConnectLimit), &error);
      if (self_.is_late()) self_.timed_out({0});
      if (has_come && error == ECONNREFUSED) self_.lost(0);
      if (!socket) continue;
      has_come = true;
      sockets::prepare(socket, self_.deadline);
      handshake::Handshake handshake(self_, kProtocol);
      if (!self_.initiate(handshake, socket, 0) ||
          !handshake::send_signed(socket, "address", handshake, peer_address))
        continue;
      if (auto message = handshake::receive_signed(socket, "table", handshake, self_.deadline))
        return std::move(*message);
    }
  }

  // The other ranks. Opening the network takes a moment, in which rank 0 shall not wait for one of
  // them alone.
  void join() {
    const std::string peer_address = pack(
        own_address(sockets::local_address_towards(options_.master_address, options_.master_port)));
    system::FileDescriptor socket;
    const std::string message = exchange_addresses(peer_address, socket);
    wire::PayloadReader reader(message);
    if (reader.text() == "no") {
      const auto kind = comm::CommError::Kind(reader.number());
      const auto culprit = reader.small_number();
      throw comm::CommError(kind, culprit, fmt::format("rank {}: {}", self_.rank, reader.text()));
    }
    const std::string session(reader.text());
    const std::vector<std::string> peers = reader.list();
    rendezvous_.sockets.push_back(std::move(socket));
    finish(peers, session);
  }

  const Participant& self_;
  const net::FabricOptions& options_;
  std::vector<handshake::Acceptor::AcceptedPeer> accepted_;
  handshake::Acceptor acceptor_;
  std::vector<std::string> addresses_;
  FabricRendezvous rendezvous_;
};

}  // namespace

FabricRendezvous fabric_rendezvous(const Participant& self, const net::FabricOptions& options) {
  return FabricRendezvousRun(self, options).run();
}

}  // namespace smp::bootstrap
