#pragma once

#include <netdb.h>

#include <cstdint>
#include <string>

#include "smp/launcher/reach/rendezvous.h"
#include "smp/plan/base/proof.h"

// What the two sides of a rendezvous say to each other, byte for byte (little-endian, as every host
// that smp is built for).
namespace smp::reach {

struct RendezvousHello {
  char greeting[8] = {'s', 'm', 'p', 'm', 'e', 'e', 't', '1'};
  uint32_t node_rank = 0, slots = 0, hosts = 0, unused = 0;
  Nonce nonce{};

  bool is_greeting() const;
  RendezvousNode node() const {
    return {static_cast<int>(node_rank), static_cast<int>(slots), static_cast<int>(hosts)};
  }
};
static_assert(sizeof(RendezvousHello) == 40);

struct RendezvousChallenge {
  Nonce nonce{};
  Mac proof{};
};

enum class RendezvousVerdict : unsigned char { kWelcome, kTaken, kOtherHosts, kOtherSlots };

// Who proves what to whom, so that a proof fits nowhere else.
Mac proof_of(const std::string& key, const char* side, const RendezvousHello& hello,
             const Nonce& answer);

// The addresses of a place; the list of getaddrinfo.
class AddressList {
 public:
  explicit AddressList(const RendezvousEndpoint& endpoint);
  ~AddressList();
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;

  const addrinfo* first() const { return list_; }  // nullptr: none
  const char* why_not() const { return gai_strerror(error_); }

 private:
  addrinfo* list_ = nullptr;
  int error_ = 0;
};

}  // namespace smp::reach
