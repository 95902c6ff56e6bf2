#pragma once

#include <optional>
#include <string>

#include "bootstrap/handshake.h"

namespace smp::bootstrap {

// Letters of two ranks that have shaken hands: each proves that it is said as `what` in this
// conversation, by somebody who knows the job's key.
bool send_letter(const waiting::Descriptor& socket, const char* what, const Handshake& handshake,
                 const std::string& bytes);
// Whether all of one can be read without waiting.
bool letter_is_here(const waiting::Descriptor& socket);
// Nothing when the other end went away, does not know the key, or the deadline has passed.
std::optional<std::string> receive_letter(const waiting::Descriptor& socket, const char* what,
                                          const Handshake& handshake, Deadline deadline);

}  // namespace smp::bootstrap
