#pragma once

#include <algorithm>
#include <cstdint>

#include "net/mesh_order.h"
#include "progress/call.h"
#include "smp/comm/net/exchange_algorithm.h"
#include "smp/plan/mesh/collective.h"

// The messages of an exchange between hosts (exchange_algorithm.h), as a pure function of the
// number of hosts and of the bytes in a part.
namespace smp::net {

// Bytes of a message of an exchange. Recursive doubling packs several parts into one message, in
// memory of the endpoint. Otherwise each part goes by itself.
inline int64_t step_message_bytes(Exchange exchange, int64_t part, bool takes_any_memory) {
  return exchange == Exchange::kDoubling ? mesh::kMessageBytes
                                         : message_bytes(part, takes_any_memory);
}

// One message that a host sends, and the equal one that it receives in the same step. The sent
// message has bytes [at, at + bytes) of the parts of hosts `sent`, sent + 1, ... one after the
// other; the received one those of `taken`, taken + 1, ...
struct ExchangeStep {
  int to = 0, from = 0;
  int sent = 0, taken = 0;
  int64_t at = 0, bytes = 0;
  bool is_forwarded = false;  // its sender may have had to receive another message first
};

// The steps of a host, in the order in which it sends. It receives in the same order.
class ExchangeSchedule {
 public:
  // `most`: bytes of a message.
  ExchangeSchedule(Exchange exchange, int host, int hosts, int64_t bytes,
                   int64_t most = mesh::kMessageBytes)
      : exchange_(exchange), host_(host), hosts_(hosts), bytes_(bytes), most_(most) {
    for (int step = 1; step < hosts; step = after(step)) {
      size_ += pieces_of(bytes * parts(step));
      ++steps_;
    }
  }

  int64_t size() const { return size_; }

  // How often a part is forwarded, plus one: the sends until the last host has it.
  int64_t depth() const { return exchange_ == Exchange::kMesh ? std::min(steps_, 1) : steps_; }
  // Whether a host forwards parts of other hosts.
  bool forwards() const { return depth() > 1; }

  // The number of messages that a host sends before it must receive one. In a mesh that is one to
  // each host. In a ring or by doubling a host forwards received parts, so it sends at most two
  // pieces of its own part before. A rail has room for two.
  int64_t lead() const {
    if (exchange_ == Exchange::kMesh) return hosts_ - 1;
    return pieces_of(bytes_) > 1 ? 1 : 0;
  }

  ExchangeStep operator[](int64_t i) const {
    const bool is_forwarded = exchange_ != Exchange::kMesh && i > lead();
    if (exchange_ == Exchange::kMesh)
      return message(int(i % (hosts_ - 1)) + 1, i / (hosts_ - 1), is_forwarded);
    int step = 1;
    for (int64_t pieces; i >= (pieces = pieces_of(bytes_ * parts(step))); step = after(step))
      i -= pieces;
    return message(step, i, is_forwarded);
  }

 private:
  // A step is named by the distance of the host whose part comes first.
  int after(int step) const { return exchange_ == Exchange::kDoubling ? 2 * step : step + 1; }
  int64_t parts(int step) const {
    return exchange_ == Exchange::kDoubling ? std::min(step, hosts_ - step) : 1;
  }

  int64_t pieces_of(int64_t bytes) const {
    return std::max<int64_t>(1, progress::div_up(bytes, most_));
  }

  ExchangeStep message(int step, int64_t piece, bool is_forwarded) const {
    ExchangeStep made;
    made.at = piece * most_;
    made.is_forwarded = is_forwarded;
    made.bytes = std::min(most_, bytes_ * parts(step) - made.at);
    switch (exchange_) {
      case Exchange::kMesh:
        made.to = send_to(host_, step, hosts_);
        made.from = made.taken = take_from(host_, step, hosts_);
        made.sent = host_;
        break;
      case Exchange::kRing:
        made.to = send_to(host_, 1, hosts_);
        made.from = take_from(host_, 1, hosts_);
        made.sent = take_from(host_, step - 1, hosts_);
        made.taken = take_from(host_, step, hosts_);
        break;
      case Exchange::kDoubling:
        made.to = take_from(host_, step, hosts_);
        made.from = made.taken = send_to(host_, step, hosts_);
        made.sent = host_;
        break;
    }
    return made;
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
void visit_parts(const ExchangeStep& step, int first, int hosts, int64_t part, Visit visit) {
  for (int64_t done = 0; done < step.bytes;) {
    const int64_t at = step.at + done, offset = at % part;
    const int64_t bytes = std::min(step.bytes - done, part - offset);
    visit(int((first + at / part) % hosts), offset, bytes, done);
    done += bytes;
  }
}

}  // namespace smp::net
