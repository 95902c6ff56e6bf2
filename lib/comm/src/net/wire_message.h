#pragma once

#include <cstddef>
#include <cstdint>

#include "net/fabric_transport.h"
#include "segment/layout.h"
#include "smp/plan/mesh/collective.h"

// Messages between hosts and their headers.
namespace smp::net {

// Bytes of one round of a long reduction. A round and its headers fill whole TCP segments: two of
// 62,636 bytes or more, seven packets of 9,000 (45 of 1,500 are 65,160). A few bytes more would
// take a segment of their own and cost the receiver another wake-up
// (docs/lab/figures-collectives.md).
inline constexpr int64_t kRoundBytes = 122 << 10;
// Bytes of a zero-copy piece. Data that is not summed goes in pieces from the sender's memory to
// the receiver's. The last piece may be a little longer (kMostPieceBytes). A receiver advertises at
// most kPiecesAhead pieces. The pieces of one channel that are under way have at most
// kChannelWindow bytes.
inline constexpr int64_t kPieceBytes = 2 * kRoundBytes, kMostPieceBytes = 256 << 10;
inline constexpr size_t kPiecesAhead = 8;
inline constexpr int64_t kChannelWindow = 1 << 20;

// The header of every message between hosts.
struct alignas(segment::kLineBytes) MessageHeader {
  // kReceiveReady: a receive advertisement; its sender has memory ready for pieces [index,
  // advertised) of its calls, whose remote buffers follow. kSenderWaiting: its sender waits for an
  // advertisement from piece `index` on. kRevoked: its sender wants its advertised memory back.
  // kStopped: its sender writes no more to that memory, and has written `advertised` pieces.
  // kStatusRequest, kStatusReply: a question to another rank about its calls.
  enum Kind : uint32_t {
    kData,
    kCreditGrant,
    kClosed,
    kStatusRequest,
    kStatusReply,
    kReceiveReady,
    kSenderWaiting,
    kRevoked,
    kStopped
  };
  uint64_t secret;   // of the job; messages with another secret are dropped
  uint64_t channel;  // which of the channels between these two ranks; of kStatusRequest the
                     // group's key
  // Among the data messages of the channel in this direction, from 0. Of kStatusRequest and
  // kStatusReply the number of the question, 0 for a mere sign of life.
  uint64_t index;
  uint64_t granted;  // credits: messages that its sender can take in the other direction, in all
  uint64_t fingerprint, number;  // of the call
  int64_t count;
  uint32_t kind;
  int32_t from;    // global rank
  int32_t root;    // of kStatusReply the awaited rank
  uint32_t bytes;  // bytes after the header
  uint8_t op, dtype, reduce_op;
  char label[segment::kLabelBytes];
  uint64_t advertised;       // of kClosed the pieces that its sender has written
  uint32_t coalesced_bytes;  // of kData: of the messages that came with it, behind it
  uint32_t
      calls;  // of kReceiveReady: so many, alike, from its own on; each has equally many pieces
};
static_assert(sizeof(MessageHeader) == mesh::kMessageHeaderBytes);

// A message without data: its header, and the remote buffers of a receive advertisement.
struct ControlMessage {
  MessageHeader header{};
  FabricTransport::RemoteBuffer buffers[kPiecesAhead] = {};
};

class Channel;

// A message, or a receive for one, with its header in memory of the endpoint. Its data may continue
// in a caller's memory; it then belongs to a channel.
struct WireMessage final : FabricTransport::Transfer {
  bool has_payload = false;  // room behind the header
  Channel* channel = nullptr;
  uint64_t number = 0;  // of a send among those from callers' memory, of a receive among the pieces
  std::byte* bounce_target = nullptr;  // of a piece in a bounce buffer: its destination

  // Of kData: bytes behind the header.
  int64_t content() const { return int64_t{header().bytes} + header().coalesced_bytes; }
  MessageHeader& header() const { return *reinterpret_cast<MessageHeader*>(data()); }
  ControlMessage& control() const { return *reinterpret_cast<ControlMessage*>(data()); }
};

}  // namespace smp::net
