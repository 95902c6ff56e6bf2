#include "smp/rendezvous/sockets/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace smp::sockets {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw std::runtime_error(
        fmt::format("cannot find the address of '{}': {}", address, gai_strerror(error)));
  return Addresses(found, freeaddrinfo);
}

}  // namespace

std::string text_of_address(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* from =
      address->sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  inet_ntop(address->sa_family, from, text, sizeof(text));
  return text;
}

system::FileDescriptor listen_tcp(const std::string& address, int port) {
  const Addresses found = resolve(address, port);
  system::FileDescriptor socket(
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, off = 0;
  if (found->ai_family == AF_INET6)
    setsockopt(socket.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (!socket || setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(socket.number(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(socket.number(), SOMAXCONN) != 0)
    throw std::system_error(errno, std::generic_category(),
                            fmt::format("cannot listen at {} port {}", address, port));
  return socket;
}

namespace {

// 0: connected. The socket does not block.
int connect_before(const system::FileDescriptor& socket, const addrinfo& to, Deadline deadline) {
  if (connect(socket.number(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd event{socket.number(), POLLOUT, 0};
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  if (poll(&event, 1, int(std::clamp<int64_t>(left.count(), 0, 1 << 30))) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t bytes = sizeof(error);
  return getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

}  // namespace

system::FileDescriptor try_connect_tcp(const std::string& address, int port, Deadline deadline,
                                       int* error) {
  const Addresses found = resolve(address, port);
  int last = 0, left = 0;
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) ++left;
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next, --left) {
    // An address that does not answer leaves time for the next ones.
    const Deadline now = steady_clock::now(), limit = now + (deadline - now) / left;
    system::FileDescriptor socket(
        ::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket && (errno == EMFILE || errno == ENFILE))
      throw std::system_error(errno, std::generic_category(), "cannot make a TCP socket");
    last = socket ? connect_before(socket, *to, limit) : errno;
    if (last != 0) continue;
    fcntl(socket.number(), F_SETFL, fcntl(socket.number(), F_GETFL) & ~O_NONBLOCK);
    return socket;
  }
  if (error != nullptr) *error = last;
  return {};
}

void prepare(const system::FileDescriptor& socket, Deadline deadline) {
  const int on = 1;
  setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto left =
      std::max(std::chrono::ceil<std::chrono::seconds>(deadline - steady_clock::now()),
               std::chrono::seconds(1));
  const timeval limit{left.count(), 0};
  setsockopt(socket.number(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

namespace {

sockaddr_storage name_of(const system::FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(socket.number(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    throw std::system_error(errno, std::generic_category(), "getsockname");
  return address;
}

}  // namespace

std::string local_address_of(const system::FileDescriptor& socket) {
  const sockaddr_storage address = name_of(socket);
  return text_of_address(reinterpret_cast<const sockaddr*>(&address));
}

int local_port_of(const system::FileDescriptor& socket) {
  const sockaddr_storage address = name_of(socket);
  return ntohs(address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

std::string remote_address_of(const system::FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getpeername(socket.number(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "?";
  return text_of_address(reinterpret_cast<const sockaddr*>(&address));
}

std::string local_address_towards(const std::string& address, int port) {
  const Addresses found = resolve(address, port);
  int error = 0;
  for (const bool ipv4 : {true, false})  // a name may have an IPv6 address that leads nowhere
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      if ((to->ai_family == AF_INET) != ipv4) continue;
      const system::FileDescriptor socket(::socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (socket && connect(socket.number(), to->ai_addr, to->ai_addrlen) == 0)
        return local_address_of(socket);
      error = errno;
    }
  throw std::system_error(error, std::generic_category(),
                          fmt::format("no route to {} port {}", address, port));
}

}  // namespace smp::sockets
