#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "group_keys.h"
#include "port.h"
#include "smp/plan/check.h"

// Messages that are sent from and received into the memory of callers: nobody copies them. A call
// ends only when the network touches its memory no more.
namespace smp::shm {

using Box = Transport::Box;

bool Port::has_room(const Channel& channel, int64_t bytes) const {
  const bool is_full = channel.lent_bytes_ > 0 && channel.lent_bytes_ + bytes > kChannelWindow;
  return !free_buffers_.empty() && !is_full && counts_.bytes_in_flight + bytes <= kWindowBytes;
}

void Port::send_from(Channel& channel, const Call& call, const std::byte* from, int64_t bytes) {
  SMP_CHECK(channel.sent_ < channel.credits_.load() && bytes <= kMessageBytes);
  MessageHeader header = header_of(channel, call);
  header.index = channel.sent_++;
  lend(channel, header, from, bytes, Box::kData);
}

void Port::send_piece(Channel& channel, const Call& call, const std::byte* from, int64_t bytes) {
  SMP_CHECK(channel.pieces_sent_ < channel.exposed_.load() && bytes <= kPieceBytes);
  MessageHeader header = header_of(channel, call);
  header.index = channel.pieces_sent_++;
  while (!channel.invitations_.empty() &&
         channel.invitations_.front().exposed <= channel.pieces_sent_)
    channel.invitations_.pop_front();
  lend(channel, header, from, bytes, Box::kStraight);
}

void Port::lend(Channel& channel, const MessageHeader& header, const std::byte* from, int64_t bytes,
                Box box) {
  Parcel& parcel = *spare_note();
  parcel.box = box;
  parcel.tag = 0;
  if (box == Box::kStraight) {  // its tag says all that the header does, which stays here
    parcel.tag = tag_of(channel, rank_, header.index);
    parcel.bytes = 0;
  }
  parcel.channel = &channel;
  parcel.number = channel.lent_++;
  parcel.rest = const_cast<std::byte*>(from);  // a transport reads what it sends
  parcel.rest_bytes = size_t(bytes);
  channel.lent_bytes_ += bytes;
  begin(parcel, channel, header, bytes);
}

// Only who knows the secret hits it.
uint64_t Port::tag_of(const Channel& channel, int sender, uint64_t number) const {
  return mix(mix(mix(channel.id_, secret_), uint64_t(sender)), number);
}

void Port::has_left(Parcel& parcel) {
  counts_.bytes_in_flight -= parcel.header().bytes;
  if (Channel* const channel = std::exchange(parcel.channel, nullptr)) {
    channel->lent_bytes_ -= int64_t(parcel.rest_bytes);
    channel->left_.add(parcel.number);
  }
  parcel.rest = nullptr;
  parcel.rest_bytes = 0;
  freed_.fetch_add(1);
  if (parcel.has_payload) return free_buffers_.push_back(&parcel);
  parcel.box = Box::kNotes;
  free_notes_.push_back(&parcel);
}

void Port::receive_piece(Channel& channel, uint64_t number, std::byte* to, int64_t bytes) {
  Parcel& parcel = *spare_note();
  parcel.box = Box::kStraight;
  parcel.tag = tag_of(channel, channel.peer_, number);
  parcel.channel = &channel;
  parcel.number = number;
  parcel.peer = -1;
  parcel.bytes = 0;
  parcel.rest = to;
  parcel.rest_bytes = size_t(bytes);
  channel.posted_.push_back(&parcel);
  submit(parcel);
}

// One without a channel was for memory that its caller has taken back.
void Port::received_piece(Parcel& parcel) {
  Channel* const channel = parcel.channel;
  if (channel != nullptr && !channel->is_let_go_) {
    if (!parcel.error.empty() || parcel.bytes != parcel.rest_bytes) {
      if (parcel.error.empty()) ++counts_.unexpected;
      parcel.bytes = 0;
      return submit(parcel);
    }
    if (const auto asked = asked_.find(channel->peer_); asked != asked_.end())
      asked->second.are_open = false;
    channel->arrive_piece(parcel);
  } else if (channel != nullptr) {
    std::erase(channel->posted_, &parcel);
  }
  parcel.channel = nullptr;
  parcel.rest = nullptr;
  parcel.rest_bytes = 0;
  parcel.box = Box::kNotes;
  free_notes_.push_back(&parcel);
}

// What its peer may still send shall find a receive, or it would be in the way of other channels'
// messages.
void Port::call_back(Channel& channel) {
  channel.is_let_go_ = true;
  channel.expected_.clear();
  for (Parcel* const piece : std::vector<Parcel*>(channel.posted_)) {
    nowhere_.resize(size_t(kPieceBytes));
    Parcel& instead = *spare_note();
    instead.box = Box::kStraight;
    instead.tag = piece->tag;
    instead.channel = nullptr;
    instead.peer = -1;
    instead.bytes = 0;
    instead.rest = nowhere_.data();
    instead.rest_bytes = piece->rest_bytes;
    submit(instead);
  }
  std::vector<Parcel*> kept_back;  // that the network had no room for yet
  std::erase_if(again_, [&](Parcel* parcel) {
    if (parcel->channel == &channel) kept_back.push_back(parcel);
    return parcel->channel == &channel;
  });
  for (Parcel* const parcel : kept_back) {
    if (parcel->peer < 0) {
      received_piece(*parcel);
    } else {
      --in_flight_;
      has_left(*parcel);
    }
  }
  for (Parcel* const piece : std::vector<Parcel*>(channel.posted_)) transport_->cancel(*piece);
}

bool Port::let_go(const std::vector<Channel*>& channels, std::chrono::milliseconds limit) {
  for (Channel* const channel : channels)
    if (!channel->is_let_go_) call_back(*channel);
  auto are_idle = [&] {
    return std::all_of(channels.begin(), channels.end(),
                       [](const Channel* channel) { return channel->is_idle(); });
  };
  for (const auto end = Clock::now() + limit; !has_ended_ && !are_idle();) {
    if (Clock::now() > end) {
      end_network();
      return false;
    }
    if (!poll()) std::this_thread::yield();
  }
  return true;
}

void Port::end_network() {
  transport_->close();
  has_ended_ = true;
  again_.clear();
  in_flight_ = 0;
}

}  // namespace smp::shm
