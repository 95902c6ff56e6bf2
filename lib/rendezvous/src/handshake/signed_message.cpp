#include "smp/rendezvous/handshake/signed_message.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

namespace smp::handshake {
namespace {

constexpr uint32_t kMostBytes = 16 << 20;

struct MessageHead {  // then so many bytes
  uint32_t bytes = 0;
  Mac proof{};
};

}  // namespace

bool send_signed(const system::FileDescriptor& socket, const char* what, const Handshake& handshake,
                 const std::string& bytes) {
  MessageHead head;
  head.bytes = uint32_t(bytes.size());
  head.proof = handshake.proof(what, bytes);
  std::string all(reinterpret_cast<const char*>(&head), sizeof(head));
  all += bytes;
  return sockets::send_all(socket, all.data(), all.size());
}

bool signed_message_is_ready(const system::FileDescriptor& socket) {
  MessageHead head;
  int bytes = 0;
  return recv(socket.number(), &head, sizeof(head), MSG_PEEK | MSG_DONTWAIT) == sizeof(head) &&
         ioctl(socket.number(), FIONREAD, &bytes) == 0 &&
         size_t(bytes) >= sizeof(head) + head.bytes;
}

std::optional<std::string> receive_signed(const system::FileDescriptor& socket, const char* what,
                                          const Handshake& handshake, sockets::Deadline deadline) {
  MessageHead head;
  if (!sockets::receive_all(socket, &head, sizeof(head), deadline) || head.bytes > kMostBytes)
    return std::nullopt;
  std::string bytes(head.bytes, '\0');
  if (!sockets::receive_all(socket, bytes.data(), bytes.size(), deadline) ||
      !equal(head.proof, handshake.proof(what, bytes)))
    return std::nullopt;
  return bytes;
}

}  // namespace smp::handshake
