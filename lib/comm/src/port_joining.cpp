#include <algorithm>
#include <utility>

#include "copy.h"
#include "port.h"
#include "smp/plan/check.h"

// Short messages that have to wait for a credit wait in one buffer and go as one message, which
// takes one credit: a stream of them costs the network, and those who give credits back, less the
// faster it is. None waits for another to come.
namespace smp::shm {
namespace {

// The other buffers are for channels whose receivers take what is sent.
constexpr int kMostJoining = int(kWindowBytes / kMessageBytes / 4);

}  // namespace

bool Port::join(Channel& channel, const Call& call, const std::byte* from, int64_t bytes) {
  Parcel* parcel = channel.joined_;
  const bool is_first = parcel == nullptr;
  if (is_first) {
    if (joining_ == kMostJoining || free_buffers_.empty()) return false;
    parcel = free_buffers_.back();
    parcel->bytes = 0;
  }
  const size_t at = end_of_line(parcel->bytes), end = at + sizeof(MessageHeader) + size_t(bytes);
  const int64_t grown = int64_t(end - parcel->bytes) - (is_first ? kMessageHeaderBytes : 0);
  const size_t most =
      std::min(size_t(kMessageBytes + kMessageHeaderBytes), transport_->short_bytes());
  if (end > most || !has_room(channel, grown)) return false;
  if (is_first) {
    free_buffers_.pop_back();
    channel.joined_ = parcel;
    ++channel.sent_;
    ++joining_;
  }
  auto& header = *reinterpret_cast<MessageHeader*>(parcel->data() + at);
  header = header_of(channel, call);
  header.index = channel.sent_ - 1;
  header.kind = MessageHeader::kData;
  header.from = rank_;
  header.bytes = uint32_t(bytes);
  if (bytes > 0) copy_bytes(parcel->data() + at + sizeof(MessageHeader), from, bytes);
  if (!is_first) parcel->header().joined_bytes += uint32_t(grown);
  parcel->bytes = end;
  count_in_flight(grown);
  return true;
}

void Port::send_joined(Channel& channel) {
  SMP_CHECK(channel.sent_ <= channel.credits_.load());
  --joining_;
  submit_data(*std::exchange(channel.joined_, nullptr), channel);
}

// Those who sent it have failed, or are told that it was not complete.
void Port::drop_joined(Channel& channel) {
  if (channel.joined_ == nullptr) return;
  --channel.sent_;
  --joining_;
  has_left(*std::exchange(channel.joined_, nullptr));
}

}  // namespace smp::shm
