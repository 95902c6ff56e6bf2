#include "smp/rendezvous/handshake/handshake.h"

#include <fmt/format.h>

namespace smp::handshake {
namespace {

const char* text_of(HandshakeError::Reason reason) {
  switch (reason) {
    case HandshakeError::Reason::kVersion: return "another version of smp";
    case HandshakeError::Reason::kSize: return "another job size";
    case HandshakeError::Reason::kKey: return "another job key";
  }
  return "";
}

}  // namespace

HandshakeError::HandshakeError(Reason why, int size)
    : std::runtime_error(fmt::format("the other end has {}", text_of(why))),
      reason(why),
      peer_size(size) {}

Handshake::Handshake(const Member& self, uint64_t protocol) : self_(&self), protocol_(protocol) {}

bool Handshake::initiate(const system::FileDescriptor& socket, int other,
                         sockets::Deadline deadline) {
  using Reason = HandshakeError::Reason;
  hello_ = {protocol_, self_->rank, self_->size, make_nonce()};
  if (!sockets::send_all(socket, &hello_, sizeof(hello_)) ||
      !sockets::receive_all(socket, &answer_, sizeof(answer_), deadline))
    return false;
  if (answer_.protocol != protocol_ || answer_.rank != other)
    throw HandshakeError(Reason::kVersion, answer_.size);
  if (answer_.size != self_->size) throw HandshakeError(Reason::kSize, answer_.size);
  if (!equal(answer_.proof, proof("answer"))) throw HandshakeError(Reason::kKey, answer_.size);
  return true;
}

bool Handshake::respond(const system::FileDescriptor& socket, sockets::Deadline deadline) {
  if (!sockets::receive_all(socket, &hello_, sizeof(hello_), deadline)) return false;
  answer_ = {protocol_, self_->rank, self_->size, make_nonce(), {}};
  // Another version is told this one's greeting, so that it can say what is the matter.
  const bool known = hello_.protocol == protocol_;
  if (known) answer_.proof = proof("answer");
  return sockets::send_all(socket, &answer_, sizeof(answer_)) && known;
}

Mac Handshake::proof(const char* what, const std::string& bytes) const {
  std::string message = fmt::format("{} {} {}/{} {}/{} ", what, self_->job_id, hello_.rank,
                                    hello_.size, answer_.rank, answer_.size);
  message.append(hello_.nonce.begin(), hello_.nonce.end());
  message.append(answer_.nonce.begin(), answer_.nonce.end());
  return authenticate(self_->job_key, message + bytes);
}

}  // namespace smp::handshake
