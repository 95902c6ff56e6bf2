#include "reach/rendezvous_messages.h"

#include <sys/socket.h>

#include <cstring>

namespace smp::reach {

bool RendezvousHello::is_greeting() const {
  const RendezvousHello known;
  return memcmp(greeting, known.greeting, sizeof greeting) == 0;
}

Mac proof_of(const std::string& key, const char* side, const RendezvousHello& hello,
             const Nonce& answer) {
  std::string message(side);
  message.append(reinterpret_cast<const char*>(&hello), sizeof hello);
  message.append(answer.begin(), answer.end());
  return authenticate(key, message);
}

AddressList::AddressList(const RendezvousEndpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  error_ =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list_);
  if (error_ != 0) list_ = nullptr;
}

AddressList::~AddressList() {
  if (list_ != nullptr) freeaddrinfo(list_);
}

}  // namespace smp::reach
