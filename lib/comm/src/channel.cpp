#include <algorithm>
#include <cstring>
#include <utility>

#include "port.h"

namespace smp::shm {

Channel::Channel(Port& port, uint64_t id, int peer, Reader* reader)
    : port_(port), id_(id), peer_(peer), reader_(reader) {
  port_.open(*this);
  try {
    grant();
  } catch (...) {
    quiet_ = true;
    port_.close(*this);
    throw;
  }
}

Channel::~Channel() { port_.close(*this); }

const MessageHeader& Channel::front() const {
  return slots_[taken_ % uint64_t(kCredits)]->header();
}

const std::byte* Channel::front_bytes() const {
  return slots_[taken_ % uint64_t(kCredits)]->data() + sizeof(MessageHeader);
}

// Messages may overtake each other: what counts as arrived has no gap.
void Channel::arrive(Parcel* parcel) {
  const MessageHeader& header = parcel->header();
  credits_.store(std::max(credits_.load(), header.granted));
  Parcel*& slot = slots_[header.index % uint64_t(kCredits)];
  if (header.index < taken_ || header.index >= granted_ || slot != nullptr) {
    ++port_.counts_.unexpected;
    return port_.recycle(*parcel);
  }
  slot = parcel;
  if (reader_ != nullptr) reader_->came(header);
  uint64_t arrived = arrived_.load();
  while (arrived < taken_ + uint64_t(kCredits) && slots_[arrived % uint64_t(kCredits)] != nullptr)
    ++arrived;
  arrived_.store(arrived);
}

void Channel::take() {
  Parcel*& slot = slots_[taken_ % uint64_t(kCredits)];
  port_.recycle(*std::exchange(slot, nullptr));
  ++taken_;
  // Messages in the other direction carry the rest of the credits.
  if (taken_ + uint64_t(kCredits) >= granted_ + uint64_t(kCredits) / 2) grant();
}

void Channel::grant() {
  granted_ = taken_ + uint64_t(kCredits);
  port_.note(*this, MessageHeader::kGrant);
}

// Whatever it is, but no data. Notes may overtake each other.
void Channel::heard(const MessageHeader& note) {
  credits_.store(std::max(credits_.load(), note.granted));
  switch (note.kind) {
    case MessageHeader::kClosed:
      closed_ = true;
      closed_at_ = note.index;
      closed_at_piece_ = note.exposed;
      return;
    case MessageHeader::kExposed: {
      const auto later = [](const MessageHeader& a, const MessageHeader& b) {
        return a.index < b.index;
      };
      invitations_.insert(std::upper_bound(invitations_.begin(), invitations_.end(), note, later),
                          note);
      uint64_t exposed = exposed_.load();
      for (const MessageHeader& invitation : invitations_)
        if (invitation.index == exposed) exposed = invitation.exposed;
      exposed_.store(exposed);
      break;
    }
    case MessageHeader::kWaiting: waiting_ = note; break;
    default: return;
  }
  if (reader_ != nullptr) reader_->came(note);
}

void Channel::tell_waiting(const Call& call) {
  MessageHeader header = port_.header_of(*this, call);
  header.kind = MessageHeader::kWaiting;
  port_.note(header, peer_);
}

// Of a call there is one invitation, so that who follows it knows whose memory it is.
void Channel::expose() {
  while (posted_.size() < kPiecesAhead && !expected_.empty()) {
    const Call& call = *expected_.front().call;
    MessageHeader header = port_.header_of(*this, call);
    header.kind = MessageHeader::kExposed;
    header.index = pieces_posted_;
    while (posted_.size() < kPiecesAhead && !expected_.empty() && expected_.front().call == &call) {
      Expected& next = expected_.front();
      const int64_t bytes = std::min(next.bytes, kPieceBytes);
      port_.receive_piece(*this, pieces_posted_++, next.to, bytes);
      next.to += bytes;
      next.bytes -= bytes;
      if (next.bytes == 0) expected_.pop_front();
    }
    header.exposed = pieces_posted_;
    port_.note(header, peer_);
  }
}

void Channel::arrive_piece(Parcel& parcel) {
  std::erase(posted_, &parcel);
  placed_.add(parcel.number);
  if (posted_.size() <= kPiecesAhead / 2) expose();
}

}  // namespace smp::shm
