#include <algorithm>
#include <utility>

#include "net/network_endpoint.h"
#include "reduce/copy.h"
#include "smp/plan/base/check.h"

// Short messages to a peer that is behind are coalesced into one, which takes one credit. So a fast
// stream of them costs the network, and the ranks that return credits, less. They are sent when
// there is a credit for them and one of these happens: their buffer is full, another credit comes,
// another message follows on their channel, or their rank waits or is idle. A peer that has taken
// the earlier messages has given a credit for them, so no message waits for ever.
namespace smp::net {
namespace {

// The other buffers are for channels whose receivers keep up.
constexpr int kMostCoalescing = int(mesh::kWindowBytes / mesh::kMessageBytes / 4);

}  // namespace

bool NetworkEndpoint::coalesce(Channel& channel, const progress::Call& call, const std::byte* from,
                               int64_t bytes) {
  const size_t most =
      std::min(size_t(mesh::kMessageBytes + mesh::kMessageHeaderBytes), transport_->short_bytes());
  const size_t more = sizeof(MessageHeader) + size_t(bytes);
  if (channel.coalesced_ != nullptr &&
      segment::end_of_line(channel.coalesced_->bytes) + more > most)
    channel.send_coalesced();
  WireMessage* message = channel.coalesced_;
  const bool is_first = message == nullptr;
  if (is_first) {
    if (coalescing_ == kMostCoalescing || free_buffers_.empty()) return false;
    message = free_buffers_.back();
    message->bytes = 0;
  }
  const size_t at = segment::end_of_line(message->bytes), end = at + more;
  const int64_t grown = int64_t(end - message->bytes) - (is_first ? mesh::kMessageHeaderBytes : 0);
  if (end > most || !has_room(channel, grown)) return false;
  if (is_first) {
    free_buffers_.pop_back();
    channel.coalesced_ = message;
    ++channel.sent_;
    ++coalescing_;
  }
  auto& header = *reinterpret_cast<MessageHeader*>(message->data() + at);
  header = header_of(channel, call);
  header.index = channel.sent_ - 1;
  header.kind = MessageHeader::kData;
  header.from = rank_;
  header.bytes = uint32_t(bytes);
  if (bytes > 0) reduce::copy_bytes(message->data() + at + sizeof(MessageHeader), from, bytes);
  if (!is_first) message->header().coalesced_bytes += uint32_t(grown);
  message->bytes = end;
  count_in_flight(grown);
  if (channel.credits_.load() >= channel.sent_) channel.hold_back();
  return true;
}

void NetworkEndpoint::send_coalesced(Channel& channel) {
  SMP_CHECK(channel.sent_ <= channel.credits_.load());
  --coalescing_;
  submit_data(*std::exchange(channel.coalesced_, nullptr), channel);
}

// Their senders have failed, or learn that the messages were not sent completely.
void NetworkEndpoint::drop_coalesced(Channel& channel) {
  if (channel.coalesced_ == nullptr) return;
  --channel.sent_;
  --coalescing_;
  send_completed(*std::exchange(channel.coalesced_, nullptr));
}

}  // namespace smp::net
