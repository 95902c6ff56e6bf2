#include "smp/rendezvous/sockets/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace smp::sockets {
namespace {

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

socklen_t fill(sockaddr_un& address, const std::string& name) {
  address = {};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path))
    throw std::invalid_argument("the socket name '" + name + "' is too long");
  memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero byte: abstract
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

system::FileDescriptor make_unix_socket() {  // does not block
  system::FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw_errno("cannot make a Unix socket");
  return fd;
}

}  // namespace

system::FileDescriptor listen_unix(const std::string& name) {
  system::FileDescriptor fd = make_unix_socket();
  sockaddr_un address;
  const socklen_t length = fill(address, name);
  if (bind(fd.number(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd.number(), 128) != 0)
    throw_errno("cannot listen at the Unix socket @" + name);
  return fd;
}

system::FileDescriptor try_connect_unix(const std::string& name, bool* is_full) {
  system::FileDescriptor fd = make_unix_socket();
  sockaddr_un address;
  const socklen_t length = fill(address, name);
  const bool is_open = connect(fd.number(), reinterpret_cast<sockaddr*>(&address), length) == 0;
  if (is_full != nullptr) *is_full = !is_open && (errno == EAGAIN || errno == EINTR);
  if (is_open) {
    fcntl(fd.number(), F_SETFL, 0);
    return fd;
  }
  if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return {};
  throw_errno("cannot connect to the Unix socket @" + name);
}

std::optional<unsigned> user_of_peer(const system::FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return std::nullopt;
  return peer.uid;
}

std::optional<int> pid_of_peer(const system::FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0)
    return std::nullopt;
  return peer.pid;
}

system::FileDescriptor process_of_peer(const system::FileDescriptor& socket) {
  const auto pid = pid_of_peer(socket);
  if (!pid) return {};
  system::FileDescriptor process(int(syscall(SYS_pidfd_open, *pid, 0)));
  if (!process && errno != ENOSYS && errno != EPERM && errno != ESRCH)
    throw_errno("cannot watch the process of a peer");
  return process;
}

}  // namespace smp::sockets
