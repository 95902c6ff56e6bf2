#include "net/network_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "smp/plan/base/check.h"

namespace smp::net {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMessageSpace = size_t(mesh::kMessageBytes + mesh::kMessageHeaderBytes);
constexpr int64_t kBuffers = mesh::kWindowBytes / mesh::kMessageBytes;
constexpr int64_t kControlReceives =
    64;  // for the control messages of all channels; more for each channel
constexpr int64_t kControlsPerChannel = 4;

}  // namespace

NetworkEndpoint::NetworkEndpoint(std::unique_ptr<FabricTransport> transport, int rank,
                                 uint64_t secret, milliseconds silence)
    : transport_(std::move(transport)), rank_(rank), secret_(secret), silence_(silence) {
  Block buffers = make_block(kBuffers, kMessageSpace, FabricTransport::MessageClass::kData);
  for (const auto& message : buffers.messages) {
    message->has_payload = true;
    free_buffers_.push_back(message.get());
  }
  blocks_.push_back(std::move(buffers));
  Block controls =
      make_block(kControlReceives, sizeof(ControlMessage), FabricTransport::MessageClass::kControl);
  for (const auto& message : controls.messages) recycle(*message);
  blocks_.push_back(std::move(controls));
  // The network may refuse the registration, and a later refusal could not be reported.
  if (!takes_any_memory()) discard_buffer_ = transport_->allocate(size_t(kMostPieceBytes));
}

void NetworkEndpoint::register_memory(std::byte* begin, int64_t bytes) {
  auto memory = transport_->adopt(begin, size_t(bytes));
  if (memory != nullptr) registered_.emplace(begin, RegisteredRange{bytes, std::move(memory)});
}

void NetworkEndpoint::deregister_memory(const std::byte* begin) { registered_.erase(begin); }

// The registered memory that has the whole range; null: none.
FabricTransport::Memory* NetworkEndpoint::registered_memory(const std::byte* begin,
                                                            int64_t bytes) const {
  auto after = registered_.upper_bound(begin);
  if (after == registered_.begin()) return nullptr;
  const auto& [first, one] = *--after;
  return begin + bytes <= first + one.bytes ? one.memory.get() : nullptr;
}

NetworkEndpoint::~NetworkEndpoint() {
  transport_.reset();
}  // before the memory that the network may write to

NetworkEndpoint::Block NetworkEndpoint::make_block(int64_t messages, size_t bytes,
                                                   FabricTransport::MessageClass message_class) {
  Block block;
  block.memory = transport_->allocate(size_t(messages) * bytes);
  for (int64_t i = 0; i < messages; ++i) {
    auto message = std::make_unique<WireMessage>();
    message->memory = block.memory.get();
    message->at = size_t(i) * bytes;
    message->bytes = bytes;
    message->message_class = message_class;
    block.messages.push_back(std::move(message));
  }
  return block;
}

void NetworkEndpoint::open(Channel& channel) {
  add_receives(1);
  SMP_CHECK(channels_.emplace(channel.id_, &channel).second);
  if (const auto early = early_.find(channel.id_); early != early_.end()) {
    const EarlyControl said = std::move(early->second);
    early_.erase(early);
    counts_.early = int64_t(early_.size());
    channel.credits_.store(said.granted);
    for (const ControlMessage& control : said.controls) channel.on_control(control);
  }
}

void NetworkEndpoint::close(Channel& channel) {
  channel.send_coalesced();
  drop_coalesced(channel);
  if (!channel.is_silent_) {
    if (!channel.closed_) send_control(channel, MessageHeader::kClosed);
  } else if (transport_->writes() && !channel.closed_) {
    send_control(channel,
                 MessageHeader::kStopped);  // this rank may have ended when its peer asks
  }
  for (WireMessage* message : channel.slots_)
    if (message != nullptr) recycle(*message);
  std::erase(held_, &channel);
  std::erase(waiting_, &channel);
  channels_.erase(channel.id_);
  closed_.add(channel.id_, channel.written_);
  ++spare_receives_;
}

void NetworkEndpoint::add_receives(int64_t channels) {
  if (spare_receives_ >= channels) {
    spare_receives_ -= channels;
    return;
  }
  Block data =
      make_block(channels * mesh::kCredits, kMessageSpace, FabricTransport::MessageClass::kData);
  Block controls = make_block(channels * kControlsPerChannel, sizeof(ControlMessage),
                              FabricTransport::MessageClass::kControl);
  blocks_.push_back(std::move(data));
  blocks_.push_back(std::move(controls));
  for (auto block = blocks_.end() - 2; block != blocks_.end(); ++block)
    for (const auto& message : block->messages) recycle(*message);
}

// Makes a receive wait for the next message.
void NetworkEndpoint::recycle(WireMessage& receive) {
  receive.bytes = receive.message_class == FabricTransport::MessageClass::kData
                      ? kMessageSpace
                      : sizeof(ControlMessage);
  receive.peer = -1;
  submit(receive);
}

void NetworkEndpoint::submit(WireMessage& message) {
  message.error.clear();
  if (has_ended_) {
    if (message.message_class == FabricTransport::MessageClass::kControl && message.peer >= 0)
      free_controls_.push_back(&message);
    return;
  }
  if (message.peer >= 0) ++in_flight_;
  // Earlier messages go first.
  const bool there_is_room = retries_.empty() && (message.peer < 0 ? transport_->receive(message)
                                                                   : transport_->send(message));
  if (!there_is_room) retries_.push_back(&message);
}

bool NetworkEndpoint::retry() {
  bool moved = false;
  for (size_t left = retries_.size(); left > 0; --left) {
    WireMessage* message = retries_.front();
    retries_.pop_front();
    const bool done =
        message->peer < 0 ? transport_->receive(*message) : transport_->send(*message);
    if (!done) retries_.push_back(message);  // there may be room for a message to another peer
    moved |= done;
  }
  return moved;
}

bool NetworkEndpoint::poll() {
  if (has_ended_) {
    queries_.clear();
    return false;
  }
  bool moved = !retries_.empty() && retry();
  // Programs have run since the question arrived, so they have begun all calls made before it.
  for (const MessageHeader& query : std::exchange(queries_, {})) reply_status(query);
  complete_.clear();
  transport_->poll(complete_);
  for (FabricTransport::Transfer* transfer : complete_)
    completed(static_cast<WireMessage&>(*transfer));
  return moved || !complete_.empty();
}

void NetworkEndpoint::send_held() {
  for (Channel* const channel : std::exchange(held_, {})) channel->send_held();
}

void NetworkEndpoint::send_waiting() {
  send_held();
  for (Channel* const channel : std::exchange(waiting_, {})) channel->send_waiting();
}

void NetworkEndpoint::flush(milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (in_flight_ > 0 && !has_ended_ && Clock::now() < end)
    if (!poll()) std::this_thread::yield();
}

void NetworkEndpoint::completed(WireMessage& message) {
  if (message.peer >= 0) {
    --in_flight_;
    if (!message.error.empty())
      send_errors_.emplace(
          message.peer, SendError{fmt::format("messages no longer reach rank {}: {}", message.peer,
                                              message.error),
                                  Clock::now()});
    if (message.message_class == FabricTransport::MessageClass::kControl)
      free_controls_.push_back(&message);
    else
      send_completed(message);
  } else if (message.message_class == FabricTransport::MessageClass::kZeroCopy) {
    received_piece(message);
  } else if (!message.error.empty()) {
    recycle(message);
  } else {
    received(message);
  }
}

void NetworkEndpoint::received(WireMessage& message) {
  const MessageHeader& header = message.header();
  if (message.bytes < sizeof(MessageHeader) || header.secret != secret_ ||
      message.bytes != sizeof(MessageHeader) + size_t(message.content())) {
    ++counts_.unauthenticated;
    return recycle(message);
  }
  if (const auto asked = liveness_.find(header.from); asked != liveness_.end())
    asked->second.is_open = false;
  if (header.kind == MessageHeader::kStatusRequest || header.kind == MessageHeader::kStatusReply) {
    const MessageHeader said = header;
    recycle(message);
    if (said.kind == MessageHeader::kStatusReply) return on_status_reply(said);
    return queries_.push_back(said);
  }
  const auto found = channels_.find(header.channel);
  if (header.kind == MessageHeader::kData) {
    if (found != channels_.end()) return found->second->arrive(&message);
    return recycle(message);  // for a channel that has been closed
  }
  ControlMessage said{header};
  if (header.bytes <= sizeof(said.buffers))
    memcpy(said.buffers, message.control().buffers, header.bytes);
  recycle(message);
  if (found != channels_.end()) return found->second->on_control(said);
  const auto written = closed_.written_by(said.header.channel);
  if (said.header.kind == MessageHeader::kRevoked)
    stop_writing(said.header.channel, said.header.from, written.value_or(0));
  if (written) return;
  EarlyControl& early = early_[said.header.channel];
  counts_.early = int64_t(early_.size());
  early.granted = std::max(early.granted, said.header.granted);
  if (said.header.kind != MessageHeader::kCreditGrant) early.controls.push_back(said);
}

std::byte* NetworkEndpoint::payload() const {
  return free_buffers_.back()->data() + sizeof(MessageHeader);
}

// First the bytes in the payload, then the bytes in the caller's memory.
void NetworkEndpoint::send(Channel& channel, const progress::Call& call, int64_t bytes) {
  channel.send_coalesced();
  SMP_CHECK(channel.sent_ < channel.credits_.load() && bytes <= mesh::kMessageBytes);
  WireMessage& message = *free_buffers_.back();
  free_buffers_.pop_back();
  MessageHeader header = header_of(channel, call);
  header.index = channel.sent_++;
  message.bytes = sizeof(MessageHeader) + size_t(bytes);
  begin(message, channel, header, bytes);
}

// Each message grants credits for messages in the other direction.
MessageHeader NetworkEndpoint::header_of(const Channel& channel, const progress::Call& call) const {
  MessageHeader header{};
  header.channel = channel.id_;
  header.granted = channel.granted_;
  header.fingerprint = progress::fingerprint(call);
  header.number = call.number;
  header.count = call.count;
  header.root = call.peer;
  header.op = uint8_t(call.op);
  header.dtype = uint8_t(call.dtype);
  header.reduce_op = uint8_t(call.reduce_op);
  memcpy(header.label, call.label.data(), std::min(call.label.size(), segment::kLabelBytes - 1));
  return header;
}

void NetworkEndpoint::begin(WireMessage& message, Channel& channel, const MessageHeader& its_header,
                            int64_t bytes) {
  message.header() = its_header;
  message.header().bytes = uint32_t(bytes);
  count_in_flight(bytes);
  submit_data(message, channel);
}

void NetworkEndpoint::count_in_flight(int64_t bytes) {
  counts_.bytes_in_flight += bytes;
  counts_.most_in_flight = std::max(counts_.most_in_flight, counts_.bytes_in_flight);
  SMP_CHECK(counts_.bytes_in_flight <= mesh::kWindowBytes);
}

void NetworkEndpoint::submit_data(WireMessage& message, Channel& channel) {
  MessageHeader& header = message.header();
  // The peer reads the header, unless the message is zero-copy.
  if (message.message_class == FabricTransport::MessageClass::kData)
    header.granted = channel.granted_ = channel.emptied_ + uint64_t(mesh::kCredits);
  header.secret = secret_;
  header.kind = MessageHeader::kData;
  header.from = rank_;
  message.peer = channel.peer_;
  if (message.message_class == FabricTransport::MessageClass::kData)
    channel.submitted_.store(header.index + 1);
  ++counts_.messages;
  submit(message);
}

void NetworkEndpoint::send_control(const Channel& channel, MessageHeader::Kind kind) {
  MessageHeader header{};
  header.channel = channel.id_;
  header.index = channel.sent_;
  header.advertised = channel.written_;
  header.granted = channel.granted_;
  header.kind = kind;
  send_control(header, channel.peer_);
}

WireMessage* NetworkEndpoint::spare_control() {
  if (free_controls_.empty()) {
    blocks_.push_back(make_block(kControlReceives, sizeof(ControlMessage),
                                 FabricTransport::MessageClass::kControl));
    for (const auto& message : blocks_.back().messages) free_controls_.push_back(message.get());
  }
  WireMessage* const message = free_controls_.back();
  free_controls_.pop_back();
  message->bytes = sizeof(MessageHeader);
  return message;
}

WireMessage* NetworkEndpoint::spare_control_for(int peer) {
  try {
    return spare_control();
  } catch (const std::exception& error) {
    const std::string text = fmt::format(
        "rank {} cannot allocate memory for a message to rank {}: {}", rank_, peer, error.what());
    send_errors_.emplace(peer, SendError{text, Clock::now()});
    return nullptr;
  }
}

void NetworkEndpoint::send_control(const MessageHeader& header, int to) {
  WireMessage* const message = spare_control_for(to);
  if (message == nullptr) return;
  message->header() = header;
  message->header().secret = secret_;
  message->header().from = rank_;
  message->peer = to;
  submit(*message);
}

void NetworkEndpoint::send_control(const ControlMessage& control, size_t buffers, int to) {
  WireMessage* const message = spare_control_for(to);
  if (message == nullptr) return;
  message->control() = control;
  message->header().secret = secret_;
  message->header().from = rank_;
  message->header().bytes = uint32_t(buffers * sizeof(FabricTransport::RemoteBuffer));
  message->bytes += message->header().bytes;
  message->peer = to;
  submit(*message);
}

}  // namespace smp::net
