#include "net/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/network_endpoint.h"

namespace smp::net {

Channel::Channel(NetworkEndpoint& endpoint, uint64_t id, int peer, MessageListener* listener)
    : endpoint_(endpoint), id_(id), peer_(peer), listener_(listener) {
  endpoint_.open(*this);
  grant();
}

Channel::~Channel() { endpoint_.close(*this); }

// In a coalesced message, each message begins at a cache line, with its header.
const MessageHeader& Channel::message_at(const WireMessage& whole, size_t at) {
  return *reinterpret_cast<const MessageHeader*>(whole.data() + at);
}

size_t Channel::behind(const WireMessage& whole, size_t at) {
  return segment::end_of_line(at + sizeof(MessageHeader) + message_at(whole, at).bytes);
}

// Messages may overtake each other. A message counts as arrived if all earlier ones are there.
void Channel::arrive(WireMessage* message) {
  const MessageHeader& header = message->header();
  on_credits(header.granted);
  WireMessage*& slot = slots_[header.index % uint64_t(mesh::kCredits)];
  if (header.index < emptied_ || header.index >= granted_ || slot != nullptr) {
    ++endpoint_.counts_.unexpected;
    return endpoint_.recycle(*message);
  }
  slot = message;
  for (size_t at = 0; listener_ != nullptr && at < message->bytes; at = behind(*message, at))
    listener_->on_message(message_at(*message, at));
  uint64_t arrived = arrived_.load();
  for (; came_ < emptied_ + uint64_t(mesh::kCredits); ++came_) {
    const WireMessage* const next = slots_[came_ % uint64_t(mesh::kCredits)];
    if (next == nullptr) break;
    for (size_t at = 0; at < next->bytes; at = behind(*next, at)) ++arrived;
  }
  arrived_.store(arrived);
  if (came_ == granted_ && owes_credits()) grant();
}

const MessageHeader& Channel::front() const {
  return message_at(*slots_[emptied_ % uint64_t(mesh::kCredits)], front_at_);
}

const std::byte* Channel::front_bytes() const {
  return slots_[emptied_ % uint64_t(mesh::kCredits)]->data() + front_at_ + sizeof(MessageHeader);
}

void Channel::take() {
  ++taken_;
  WireMessage*& slot = slots_[emptied_ % uint64_t(mesh::kCredits)];
  front_at_ = behind(*slot, front_at_);
  if (front_at_ < slot->bytes) return;
  front_at_ = 0;
  ++emptied_;
  endpoint_.recycle(*std::exchange(slot, nullptr));
  if (!owes_credits()) return;
  came_ == granted_ ? grant() : hold_back();
}

// Messages in the other direction carry the remaining credits.
bool Channel::owes_credits() const {
  return !closed_ && !is_released_ &&
         emptied_ + uint64_t(mesh::kCredits) >= granted_ + uint64_t(mesh::kCredits) / 2;
}

void Channel::grant() {
  granted_ = emptied_ + uint64_t(mesh::kCredits);
  endpoint_.send_control(*this, MessageHeader::kCreditGrant);
}

// Coalesced messages are sent before any program sends another message.
void Channel::on_credits(uint64_t granted) {
  if (granted <= credits_.load()) return;
  credits_.store(granted);
  send_coalesced();
}

void Channel::send_coalesced() {
  if (coalesced_ != nullptr && credits_.load() >= sent_) endpoint_.send_coalesced(*this);
}

// A message of any kind without data. Such messages may overtake each other.
void Channel::on_control(const ControlMessage& whole) {
  const MessageHeader& control = whole.header;
  on_credits(control.granted);
  switch (control.kind) {
    case MessageHeader::kClosed:
      closed_ = true;
      closed_at_ = control.index;
      closed_at_piece_ = control.advertised;
      return on_stopped(control.advertised);
    case MessageHeader::kReceiveReady: on_advertisement(whole); break;
    case MessageHeader::kRevoked:
      is_revoked_ = true;
      endpoint_.withdraw(*this, true);
      endpoint_.stop_writing(id_, peer_, written_);
      return;
    case MessageHeader::kStopped: return on_stopped(control.advertised);
    case MessageHeader::kSenderWaiting:
      if (control.number > waiting_.number) waiting_ = control;  // messages may overtake each other
      break;
    default: return;
  }
  if (listener_ != nullptr) listener_->on_message(control);
}

// Sent by a rank that was asked to stop, and by a rank that has closed the channel.
void Channel::on_stopped(uint64_t pieces) {
  if (!stopped_at_) stopped_at_ = pieces;
  if (is_released_ && has_all_written()) endpoint_.cancel_receives(*this);
}

void Channel::on_advertisement(const ControlMessage& control) {
  const auto later = [](const ControlMessage& a, const ControlMessage& b) {
    return a.header.index < b.header.index;
  };
  advertisements_.insert(
      std::upper_bound(advertisements_.begin(), advertisements_.end(), control, later), control);
  uint64_t advertised = advertised_.load();
  for (const ControlMessage& advertisement : advertisements_)
    if (advertisement.header.index == advertised) advertised = advertisement.header.advertised;
  advertised_.store(advertised);
}

// The first advertisement has the number of the call with the next piece.
FabricTransport::RemoteBuffer Channel::take_remote_buffer() {
  ControlMessage& control = advertisements_.front();
  const uint64_t each = (control.header.advertised - control.header.index) / control.header.calls;
  const FabricTransport::RemoteBuffer buffer =
      control.buffers[pieces_sent_++ - control.header.index];
  if (pieces_sent_ == control.header.advertised) {
    advertisements_.pop_front();
  } else if ((pieces_sent_ - control.header.index) % each == 0) {
    ++control.header.number;
  }
  return buffer;
}

void Channel::report_waiting(const progress::Call& call) {
  if (pending_waiting_.number == 0) endpoint_.waiting_.push_back(this);
  pending_waiting_ = endpoint_.header_of(*this, call);
  pending_waiting_.kind = MessageHeader::kSenderWaiting;
  pending_waiting_.index = pieces_sent_;
}

void Channel::send_waiting() {
  const MessageHeader header = std::exchange(pending_waiting_, {});
  if (advertised_.load() == header.index && !is_released_ && !closed_)
    endpoint_.send_control(header, peer_);
}

void Channel::expect(const progress::Call& call, std::byte* to, int64_t bytes) {
  expected_.push_back({&call, to, bytes, endpoint_.piece_bytes(bytes)});
}

void Channel::defer_advertisement() { posted_.empty() ? advertise() : hold_back(); }

void Channel::hold_back() {
  if (std::find(endpoint_.held_.begin(), endpoint_.held_.end(), this) == endpoint_.held_.end())
    endpoint_.held_.push_back(this);
}

void Channel::send_held() {
  send_coalesced();
  advertise();
  if (owes_credits()) grant();
}

// Consecutive calls of the same kind are advertised together.
void Channel::advertise() {
  while (posted_.size() < kPiecesAhead && !expected_.empty()) {
    ControlMessage control;
    control.header = endpoint_.header_of(*this, *expected_.front().call);
    control.header.kind = MessageHeader::kReceiveReady;
    control.header.index = pieces_posted_;
    size_t buffers = 0, opened = 0;
    do {
      if (!advertise_first(control, opened)) break;
      buffers = opened;
      ++control.header.calls;
    } while (is_followed_by_alike(control.header, buffers / control.header.calls));
    if (control.header.calls == 0) return;
    control.header.advertised = control.header.index + buffers;
    endpoint_.send_control(control, buffers, peer_);
  }
}

// Advertises as many pieces of the first call as there is room for. False without memory; the job
// will then fail.
bool Channel::advertise_first(ControlMessage& control, size_t& buffers) {
  const progress::Call* const call = expected_.front().call;
  while (posted_.size() < kPiecesAhead && !expected_.empty() && expected_.front().call == call) {
    Expected& next = expected_.front();
    const int64_t bytes = std::min(next.bytes, next.most);
    const auto buffer = endpoint_.receive_piece(*this, pieces_posted_, next.to, bytes);
    if (!buffer) {
      expected_.clear();
      return false;
    }
    control.buffers[buffers++] = *buffer;
    ++pieces_posted_;
    next.to += bytes;
    next.bytes -= bytes;
    if (next.bytes == 0) expected_.pop_front();
  }
  return true;
}

// Whether all of `calls` are expected, and the next expected call is of the same kind and has room.
bool Channel::is_followed_by_alike(const MessageHeader& calls, size_t pieces_of_each) const {
  if (expected_.empty() || posted_.size() + pieces_of_each > kPiecesAhead) return false;
  const progress::Call& next = *expected_.front().call;
  return next.op == mesh::CollectiveOp::kRecv && next.number == calls.number + calls.calls &&
         progress::fingerprint(next) == calls.fingerprint &&
         int64_t(pieces_of_each) == progress::div_up(next.bytes(), expected_.front().most);
}

void Channel::arrive_piece(WireMessage& message) {
  std::erase(posted_, &message);
  ++written_here_;
  pieces_received_.add(message.number);
  if (posted_.size() <= kPiecesAhead / 2) advertise();
}

}  // namespace smp::net
