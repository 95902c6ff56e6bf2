#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace smp {

// A TCP port that nobody else is given while this lives, as smp-launch keeps one for rank 0:
// whoever is to listen there binds it with SO_REUSEADDR.
class HeldPort {
 public:
  HeldPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t bytes = sizeof(address);
    if (setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(socket_, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
      throw std::runtime_error("no port");
    number_ = ntohs(address.sin_port);
  }
  ~HeldPort() { close(socket_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  int number() const { return number_; }

 private:
  const int socket_;
  int number_ = 0;
};

}  // namespace smp
