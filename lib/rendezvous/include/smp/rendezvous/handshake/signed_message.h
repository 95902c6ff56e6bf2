#pragma once

#include <optional>
#include <string>

#include "smp/rendezvous/handshake/handshake.h"

namespace smp::handshake {

// Signed messages between two members of a job after their handshake. The signature proves that the
// sender knows the job's key, and binds the message to its kind `what` and to this connection.
bool send_signed(const system::FileDescriptor& socket, const char* what, const Handshake& handshake,
                 const std::string& bytes);
// Whether a whole message can be read without waiting.
bool signed_message_is_ready(const system::FileDescriptor& socket);
// Nothing if the connection ends, the signature is wrong, or the deadline has passed.
std::optional<std::string> receive_signed(const system::FileDescriptor& socket, const char* what,
                                          const Handshake& handshake, sockets::Deadline deadline);

}  // namespace smp::handshake
