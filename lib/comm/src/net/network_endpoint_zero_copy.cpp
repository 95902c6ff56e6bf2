#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "net/group_keys.h"
#include "net/network_endpoint.h"
#include "reduce/copy.h"
#include "smp/plan/base/check.h"
#include "waiting/observation.h"

// Zero-copy transfers: messages that are sent from and received into the memory of callers. A call
// ends only when the network does not touch its memory any more.
namespace smp::net {

using MessageClass = FabricTransport::MessageClass;
using std::chrono::milliseconds;

namespace {

// A rank that is asked to stop writing answers within this time, unless it or its job has ended.
constexpr milliseconds kLastWord{100}, kLastWordOfTheLiving{3000};

}  // namespace

bool NetworkEndpoint::has_room(const Channel& channel, int64_t bytes) const {
  const bool is_full = channel.zero_copy_bytes_in_flight_ > 0 &&
                       channel.zero_copy_bytes_in_flight_ + bytes > kChannelWindow;
  return !free_buffers_.empty() && !is_full &&
         counts_.bytes_in_flight + bytes <= mesh::kWindowBytes;
}

void NetworkEndpoint::send_from(Channel& channel, const progress::Call& call, const std::byte* from,
                                int64_t bytes, int64_t head) {
  channel.send_coalesced();
  SMP_CHECK(channel.sent_ < channel.credits_.load() && head + bytes <= mesh::kMessageBytes);
  MessageHeader header = header_of(channel, call);
  header.index = channel.sent_++;
  send_zero_copy(channel, header, from, bytes, nullptr, head);
}

void NetworkEndpoint::send_piece(Channel& channel, const progress::Call& call,
                                 const std::byte* from, int64_t bytes) {
  SMP_CHECK(channel.pieces_sent_ < channel.advertised_.load() && bytes <= kMostPieceBytes);
  MessageHeader header = header_of(channel, call);
  header.index = channel.pieces_sent_;
  const FabricTransport::RemoteBuffer buffer = channel.take_remote_buffer();
  if (channel.is_revoked_) return channel.zero_copy_done_.add(channel.zero_copy_sent_++);
  send_zero_copy(channel, header, from, bytes, &buffer);
}

// A piece's remote buffer identifies it, so its header is not sent.
void NetworkEndpoint::send_zero_copy(Channel& channel, const MessageHeader& header,
                                     const std::byte* from, int64_t bytes,
                                     const FabricTransport::RemoteBuffer* buffer, int64_t head) {
  FabricTransport::Memory* const memory =
      takes_any_memory() ? nullptr : registered_memory(from, bytes);
  const bool is_copied = !takes_any_memory() && memory == nullptr;
  SMP_CHECK(head == 0 || !is_copied);
  const bool has_payload = is_copied || head > 0;
  WireMessage& message = has_payload ? *free_buffers_.back() : *spare_control();
  message.message_class = MessageClass::kData;
  message.bytes = sizeof(MessageHeader) + size_t(head);
  message.rest_memory = memory;
  if (has_payload) free_buffers_.pop_back();
  if (is_copied) {
    reduce::copy_bytes(message.data() + sizeof(MessageHeader), from, bytes);
    from = message.data() + sizeof(MessageHeader);
    message.rest_memory = message.memory;
  }
  if (buffer != nullptr) {
    message.message_class = MessageClass::kZeroCopy;
    message.remote_buffer = *buffer;
    message.bytes = 0;
    ++channel.written_;
  }
  message.channel = &channel;
  message.number = channel.zero_copy_sent_++;
  message.rest = const_cast<std::byte*>(from);  // a transport reads what it sends
  message.rest_bytes = size_t(bytes);
  channel.zero_copy_bytes_in_flight_ += bytes;
  begin(message, channel, header, head + bytes);
}

// Nobody else can tell where a piece goes.
uint64_t NetworkEndpoint::secret_of(const Channel& channel, uint64_t number) const {
  return mix(mix(mix(channel.id_, secret_), uint64_t(channel.peer_)), number);
}

void NetworkEndpoint::send_completed(WireMessage& message) {
  counts_.bytes_in_flight -= message.content();
  if (Channel* const channel = std::exchange(message.channel, nullptr)) {
    channel->zero_copy_bytes_in_flight_ -= int64_t(message.rest_bytes);
    channel->zero_copy_done_.add(message.number);
  }
  message.rest = nullptr;
  message.rest_bytes = 0;
  message.rest_memory = nullptr;
  message.remote_buffer = {};
  freed_.fetch_add(1);
  message.message_class = message.has_payload ? MessageClass::kData : MessageClass::kControl;
  (message.has_payload ? free_buffers_ : free_controls_).push_back(&message);
}

// For a piece that is received into memory of the endpoint.
WireMessage* NetworkEndpoint::spare_bounce_buffer() {
  if (free_bounce_buffers_.empty()) {
    Block block = make_block(kPiecesAhead, size_t(mesh::kMessageBytes), MessageClass::kZeroCopy);
    for (const auto& message : block.messages) free_bounce_buffers_.push_back(message.get());
    blocks_.push_back(std::move(block));
  }
  WireMessage* const message = free_bounce_buffers_.back();
  free_bounce_buffers_.pop_back();
  return message;
}

// Nothing if the network refuses the memory; waiting ranks then get the reason.
std::optional<FabricTransport::RemoteBuffer> NetworkEndpoint::receive_piece(Channel& channel,
                                                                            uint64_t number,
                                                                            std::byte* to,
                                                                            int64_t bytes) {
  const auto refuse = [&](const std::string& why) {
    const std::string text =
        fmt::format("rank {} cannot expose {} bytes of its memory to rank {}: {}", rank_, bytes,
                    channel.peer_, why);
    send_errors_.emplace(channel.peer_, SendError{text, Clock::now()});
    return std::nullopt;
  };
  FabricTransport::Memory* const memory =
      takes_any_memory() ? nullptr : registered_memory(to, bytes);
  const bool is_bounced = !takes_any_memory() && memory == nullptr;
  WireMessage* spare = nullptr;
  try {  // no caller would catch an exception here, on the engine's thread too
    spare = is_bounced ? spare_bounce_buffer() : spare_control();
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
  WireMessage& message = *spare;
  message.rest = to;
  message.rest_memory = memory;
  if (is_bounced) {
    message.bounce_target = to;
    message.rest = message.data();
    message.rest_memory = message.memory;
  }
  message.message_class = MessageClass::kZeroCopy;
  message.channel = &channel;
  message.number = number;
  message.peer = -1;
  message.bytes = 0;
  message.rest_bytes = size_t(bytes);
  message.error.clear();
  if (!has_ended_) transport_->expose(message, secret_of(channel, number));
  if (!message.error.empty()) {
    recycle_receive(message);
    return refuse(message.error);
  }
  channel.posted_.push_back(&message);
  if (!transport_->writes()) submit(message);
  return message.remote_buffer;
}

// A piece without a channel was for memory that was revoked.
void NetworkEndpoint::received_piece(WireMessage& message) {
  Channel* const channel = message.channel;
  if (channel != nullptr && !channel->is_released_) {
    if (!message.error.empty() || message.bytes != message.rest_bytes) {
      if (message.error.empty()) ++counts_.unexpected;
      message.bytes = 0;
      return submit(message);
    }
    if (const auto asked = liveness_.find(channel->peer_); asked != liveness_.end())
      asked->second.is_open = false;
    if (message.bounce_target != nullptr)
      reduce::copy_bytes(message.bounce_target, message.rest, int64_t(message.rest_bytes));
    channel->arrive_piece(message);
  } else if (channel != nullptr) {
    std::erase(channel->posted_, &message);
    if (message.error.empty()) ++channel->written_here_;
    if (channel->has_all_written()) cancel_receives(*channel);
  }
  recycle_receive(message);
}

void NetworkEndpoint::recycle_receive(WireMessage& piece) {
  piece.channel = nullptr;
  piece.rest = nullptr;
  piece.rest_bytes = 0;
  piece.rest_memory = nullptr;
  piece.remote_buffer = {};
  if (std::exchange(piece.bounce_target, nullptr) != nullptr)
    return free_bounce_buffers_.push_back(&piece);
  piece.message_class = MessageClass::kControl;
  free_controls_.push_back(&piece);
}

// With RMA writes the peer is asked to stop, and answers with the number of pieces that it has
// written. The memory belongs to its caller again once these pieces have arrived, because closing a
// remote buffer does not end a running write.
void NetworkEndpoint::revoke(Channel& channel) {
  channel.is_released_ = true;
  drop_coalesced(channel);
  channel.expected_.clear();
  if (!transport_->writes())
    for (const WireMessage* const piece : channel.posted_) receive_and_discard(*piece);
  withdraw(channel, false);
  if (!transport_->writes()) return cancel_receives(channel);
  if (channel.has_all_written()) return cancel_receives(channel);
  // A peer that has closed the channel has sent that number already, and may have ended.
  if (!channel.posted_.empty() && !channel.closed_) send_control(channel, MessageHeader::kRevoked);
}

// Keeps receives for the messages that the peer may still send. Without a receive they would block
// the messages of other channels.
void NetworkEndpoint::receive_and_discard(const WireMessage& piece) {
  WireMessage* const instead = spare_control_for(piece.channel->peer_);
  if (instead == nullptr) return;
  if (discard_buffer_ == nullptr) discard_buffer_ = transport_->allocate(size_t(kMostPieceBytes));
  instead->message_class = MessageClass::kZeroCopy;
  instead->remote_buffer = piece.remote_buffer;
  instead->channel = nullptr;
  instead->peer = -1;
  instead->bytes = 0;
  instead->rest = discard_buffer_->data();
  instead->rest_memory = discard_buffer_.get();
  instead->rest_bytes = piece.rest_bytes;
  submit(*instead);
}

// Retries transfers for which the network had no room.
void NetworkEndpoint::withdraw(Channel& channel, bool only_pieces) {
  std::vector<WireMessage*> kept_back;
  std::erase_if(retries_, [&](WireMessage* message) {
    const bool is_meant = message->channel == &channel &&
                          (!only_pieces || message->message_class == MessageClass::kZeroCopy);
    if (is_meant) kept_back.push_back(message);
    return is_meant;
  });
  for (WireMessage* const message : kept_back) {
    if (message->peer < 0) {
      received_piece(*message);
      continue;
    }
    if (message->message_class == MessageClass::kZeroCopy) --channel.written_;
    --in_flight_;
    send_completed(*message);
  }
}

// The channel may be closed here already, or not be open yet.
void NetworkEndpoint::stop_writing(uint64_t channel, int to, uint64_t written) {
  MessageHeader header{};
  header.channel = channel;
  header.kind = MessageHeader::kStopped;
  header.advertised = written;
  send_control(header, to);
}

void NetworkEndpoint::cancel_receives(Channel& channel) {
  for (WireMessage* const piece : std::vector<WireMessage*>(channel.posted_))
    transport_->cancel(*piece);
}

// Messages that a rank sent before it left may arrive after the notice that it has left.
void NetworkEndpoint::cancel_unopened(const std::vector<Channel*>& channels,
                                      const std::function<bool(int)>& has_gone) {
  for (Channel* const channel : channels)
    if (!channel->posted_.empty() && channel->credits_.load() == 0 && has_gone(channel->peer_))
      cancel_receives(*channel);
}

bool NetworkEndpoint::release_buffers(const std::vector<Channel*>& channels, milliseconds limit,
                                      const std::function<bool()>& is_over,
                                      const std::function<bool(int rank)>& has_gone) {
  for (Channel* const channel : channels)
    if (!channel->is_released_) revoke(*channel);
  auto are_idle = [&] {
    return std::all_of(channels.begin(), channels.end(),
                       [](const Channel* channel) { return channel->is_idle(); });
  };
  waiting::Observation observation;
  auto is_late = [&] {
    observation.observe(Clock::now());
    const auto waited = observation.observed_for();
    const bool has_sent = std::all_of(channels.begin(), channels.end(),
                                      [](const Channel* channel) { return channel->has_sent(); });
    if (transport_->writes() && waited > kLastWord) {
      if (is_over()) return true;
      cancel_unopened(channels, has_gone);
    }
    return waited > (transport_->writes() && has_sent ? kLastWordOfTheLiving : limit);
  };
  while (!has_ended_ && !are_idle()) {
    if (is_late()) {
      end_network();
      return false;
    }
    if (!poll()) std::this_thread::yield();
  }
  return true;
}

void NetworkEndpoint::end_network() {
  transport_->close();
  has_ended_ = true;
  retries_.clear();
  in_flight_ = 0;
}

}  // namespace smp::net
