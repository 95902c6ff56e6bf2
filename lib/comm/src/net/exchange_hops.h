#pragma once

#include <algorithm>
#include <cstdint>

#include "net/mesh_order.h"
#include "progress/call.h"
#include "smp/comm/net/exchange.h"
#include "smp/plan/mesh/collective.h"

// The messages of an exchange, as a pure function of the number of hosts and of bytes in a part.
namespace smp::net {

// Bytes of a message of an exchange. By doubling parts are put together, in memory of the port;
// otherwise each goes by itself.
inline int64_t hop_bytes(Exchange exchange, int64_t part, bool takes_any_memory) {
  return exchange == Exchange::kDoubling ? mesh::kMessageBytes
                                         : message_bytes(part, takes_any_memory);
}

// One message that a host sends, and the one like it that it takes: bytes [at, at + bytes) of the
// parts of hosts `sent`, sent + 1, ... one after the other, and of `taken`, taken + 1, ...
struct Hop {
  int to = 0, from = 0;
  int sent = 0, taken = 0;
  int64_t at = 0, bytes = 0;
  bool is_handed_on = false;  // its sender may have had to take something before
};

// The hops of a host, in the order in which it sends; it takes them in the same order.
class Hops {
 public:
  // `most`: bytes of a message.
  Hops(Exchange exchange, int host, int hosts, int64_t bytes, int64_t most = mesh::kMessageBytes)
      : exchange_(exchange), host_(host), hosts_(hosts), bytes_(bytes), most_(most) {
    for (int step = 1; step < hosts; step = after(step)) {
      size_ += pieces_of(bytes * parts(step));
      ++steps_;
    }
  }

  int64_t size() const { return size_; }

  // How often a part is sent until the last host has it.
  int64_t depth() const { return exchange_ == Exchange::kMesh ? std::min(steps_, 1) : steps_; }
  // Whether a host sends what others have sent to it.
  bool are_handed_on() const { return depth() > 1; }

  // How many a host sends before it must take the first. In a mesh a round of them; otherwise what
  // it sends is what it has taken before, but for the last message: a message has another behind it
  // where a part has several. A rail has room for two.
  int64_t lead() const {
    if (exchange_ == Exchange::kMesh) return hosts_ - 1;
    return pieces_of(bytes_) > 1 ? 1 : 0;
  }

  Hop operator[](int64_t i) const {
    const bool is_handed_on = exchange_ != Exchange::kMesh && i > lead();
    if (exchange_ == Exchange::kMesh)
      return hop(int(i % (hosts_ - 1)) + 1, i / (hosts_ - 1), is_handed_on);
    int step = 1;
    for (int64_t pieces; i >= (pieces = pieces_of(bytes_ * parts(step))); step = after(step))
      i -= pieces;
    return hop(step, i, is_handed_on);
  }

 private:
  // Steps are named by how far away the part is that comes first.
  int after(int step) const { return exchange_ == Exchange::kDoubling ? 2 * step : step + 1; }
  int64_t parts(int step) const {
    return exchange_ == Exchange::kDoubling ? std::min(step, hosts_ - step) : 1;
  }

  int64_t pieces_of(int64_t bytes) const {
    return std::max<int64_t>(1, progress::div_up(bytes, most_));
  }

  Hop hop(int step, int64_t piece, bool is_handed_on) const {
    Hop hop;
    hop.at = piece * most_;
    hop.is_handed_on = is_handed_on;
    hop.bytes = std::min(most_, bytes_ * parts(step) - hop.at);
    switch (exchange_) {
      case Exchange::kMesh:
        hop.to = send_to(host_, step, hosts_);
        hop.from = hop.taken = take_from(host_, step, hosts_);
        hop.sent = host_;
        break;
      case Exchange::kRing:
        hop.to = send_to(host_, 1, hosts_);
        hop.from = take_from(host_, 1, hosts_);
        hop.sent = take_from(host_, step - 1, hosts_);
        hop.taken = take_from(host_, step, hosts_);
        break;
      case Exchange::kDoubling:
        hop.to = take_from(host_, step, hosts_);
        hop.from = hop.taken = send_to(host_, step, hosts_);
        hop.sent = host_;
        break;
    }
    return hop;
  }

  Exchange exchange_;
  int host_, hosts_;
  int64_t bytes_, most_;
  int64_t size_ = 0;
  int steps_ = 0;
};

// Calls visit(host, offset in its part, bytes, offset in the message) for each part that a message
// has a piece of, beginning with that of `first`.
template <class Visit>
void visit_parts(const Hop& hop, int first, int hosts, int64_t part, Visit visit) {
  for (int64_t done = 0; done < hop.bytes;) {
    const int64_t at = hop.at + done, offset = at % part;
    const int64_t bytes = std::min(hop.bytes - done, part - offset);
    visit(int((first + at / part) % hosts), offset, bytes, done);
    done += bytes;
  }
}

}  // namespace smp::net
