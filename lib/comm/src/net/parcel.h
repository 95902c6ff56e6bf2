#pragma once

#include <cstddef>
#include <cstdint>

#include "net/transport.h"
#include "segment/layout.h"
#include "smp/plan/mesh/collective.h"

// What goes between hosts, and how it begins.
namespace smp::net {

// What is longer than a message goes in parts that fill, with all headers, whole segments of TCP:
// two of 62,636 bytes or more, seven packets of 9,000 (45 of 1,500 are 65,160). Some bytes more,
// in a segment of their own, cost the receiver another wake-up (docs/lab/figures-collectives.md).
inline constexpr int64_t kRoundBytes = 122 << 10;
// What is not summed goes in pieces of this many bytes from its sender's memory to its receiver's,
// or as one up to a little more; the receiver has so many ready. Those of one channel that have not
// left are at most so much.
inline constexpr int64_t kPieceBytes = 2 * kRoundBytes, kMostPieceBytes = 256 << 10;
inline constexpr size_t kPiecesAhead = 8;
inline constexpr int64_t kChannelWindow = 1 << 20;

// What every message between hosts begins with.
struct alignas(segment::kLineBytes) MessageHeader {
  // kExposed: its sender has memory ready for pieces [index, exposed) of its calls, whose places
  // follow; kWaiting: it waits for such, from piece `index` on; kRevoked: it wants its memory back;
  // kStopped: nothing more will be written to that, and `exposed` pieces have been.
  enum Kind : uint32_t {
    kData,
    kGrant,
    kClosed,
    kAsk,
    kHere,
    kExposed,
    kWaiting,
    kRevoked,
    kStopped
  };
  uint64_t secret;   // of the job: what comes without it is no message of ours
  uint64_t channel;  // which of the channels between these two ranks; of kAsk the group's key
  uint64_t index;    // among the data messages of the channel in this direction, from 0; of kAsk
                     // and kHere which question it is, 0 if all that it asks for is an answer
  uint64_t granted;  // how many its sender is ready to take in the other direction, all in all
  uint64_t fingerprint, number;  // of the call
  int64_t count;
  uint32_t kind;
  int32_t from;    // global rank
  int32_t root;    // of kHere the rank that is waited for
  uint32_t bytes;  // that follow
  uint8_t op, dtype, reduce_op;
  char label[segment::kLabelBytes];
  uint64_t exposed;       // of kClosed the pieces that its sender has written
  uint32_t joined_bytes;  // of kData: of the messages that came with it, behind it
  uint32_t calls;  // of kExposed: so many, alike, from its own on; each has equally many pieces
};
static_assert(sizeof(MessageHeader) == mesh::kMessageHeaderBytes);

// What is no data.
struct Note {
  MessageHeader header{};
  Transport::Place places[kPiecesAhead] = {};
};

class Channel;

// A message, its header in memory of the port. It may go on in a caller's, which belongs to a
// channel.
struct Parcel final : Transport::Transfer {
  bool has_payload = false;  // room behind the header
  Channel* channel = nullptr;
  uint64_t number = 0;  // of a send among those from callers' memory, of a receive among the pieces
  std::byte* home = nullptr;  // of a piece that comes to memory of the port: where it shall be

  // Of kData: what is behind the header.
  int64_t content() const { return int64_t{header().bytes} + header().joined_bytes; }
  MessageHeader& header() const { return *reinterpret_cast<MessageHeader*>(data()); }
  Note& note() const { return *reinterpret_cast<Note*>(data()); }
};

}  // namespace smp::net
