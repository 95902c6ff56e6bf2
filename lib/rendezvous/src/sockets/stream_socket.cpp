#include "smp/rendezvous/sockets/stream_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace smp::sockets {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

system::FileDescriptor accept_one(const system::FileDescriptor& listener, bool* is_full) {
  system::FileDescriptor fd(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool no_files = !fd && (errno == EMFILE || errno == ENFILE);
  if (is_full != nullptr) *is_full = no_files;
  if (no_files && is_full == nullptr) throw_errno("cannot accept a connection");
  return fd;
}

bool wait_readable(const system::FileDescriptor& socket, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd event{socket.number(), POLLIN, 0};
    const int ready = poll(&event, 1, int(std::clamp<int64_t>(left.count(), 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) throw_errno("cannot wait for a socket");
  }
}

bool closed_by_peer(const system::FileDescriptor& socket) {
  char byte;
  const ssize_t n = recv(socket.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool send_all(const system::FileDescriptor& socket, const void* data, size_t bytes, int side_fd) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    iovec vector{const_cast<char*>(at), bytes};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (side_fd >= 0) {  // goes with the first byte
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(header), &side_fd, sizeof(int));
    }
    const ssize_t n = sendmsg(socket.number(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    side_fd = -1;
    at += n;
    bytes -= size_t(n);
  }
  return true;
}

bool receive_all(const system::FileDescriptor& socket, void* data, size_t bytes, Deadline deadline,
                 system::FileDescriptor* side) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!wait_readable(socket, deadline)) return false;
    iovec vector{at, bytes};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(socket.number(), &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    // One that came, but that this process had no number left for.
    if ((message.msg_flags & MSG_CTRUNC) != 0 && CMSG_FIRSTHDR(&message) == nullptr) {
      rlimit files{};
      getrlimit(RLIMIT_NOFILE, &files);
      throw std::runtime_error(fmt::format(
          "cannot receive a descriptor from a peer: this process has reached its limit of {} open "
          "files (ulimit -n)",
          files.rlim_cur));
    }
    for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
      if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
      int fd;
      memcpy(&fd, CMSG_DATA(h), sizeof(int));
      system::FileDescriptor received(fd);
      if (side != nullptr) *side = std::move(received);
    }
    at += n;
    bytes -= size_t(n);
  }
  return true;
}

}  // namespace smp::sockets
