#include <algorithm>
#include <utility>

#include "net/port.h"
#include "reduce/copy.h"
#include "smp/plan/base/check.h"

// Short messages to a peer that is behind go as one, which takes one credit: a stream of them costs
// the network, and those who give credits back, less the faster it is. They leave when there is a
// credit for them and their buffer is full, another credit has come, something else follows on
// their channel, or their rank waits or has nothing to do. A peer that has taken what was sent
// before has given a credit for it, so none waits in vain.
namespace smp::net {
namespace {

// The other buffers are for channels whose receivers take what is sent.
constexpr int kMostJoining = int(mesh::kWindowBytes / mesh::kMessageBytes / 4);

}  // namespace

bool Port::join(Channel& channel, const progress::Call& call, const std::byte* from,
                int64_t bytes) {
  const size_t most =
      std::min(size_t(mesh::kMessageBytes + mesh::kMessageHeaderBytes), transport_->short_bytes());
  const size_t more = sizeof(MessageHeader) + size_t(bytes);
  if (channel.joined_ != nullptr && segment::end_of_line(channel.joined_->bytes) + more > most)
    channel.send_joined();
  Parcel* parcel = channel.joined_;
  const bool is_first = parcel == nullptr;
  if (is_first) {
    if (joining_ == kMostJoining || free_buffers_.empty()) return false;
    parcel = free_buffers_.back();
    parcel->bytes = 0;
  }
  const size_t at = segment::end_of_line(parcel->bytes), end = at + more;
  const int64_t grown = int64_t(end - parcel->bytes) - (is_first ? mesh::kMessageHeaderBytes : 0);
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
  if (bytes > 0) reduce::copy_bytes(parcel->data() + at + sizeof(MessageHeader), from, bytes);
  if (!is_first) parcel->header().joined_bytes += uint32_t(grown);
  parcel->bytes = end;
  count_in_flight(grown);
  if (channel.credits_.load() >= channel.sent_) channel.hold_back();
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

}  // namespace smp::net
