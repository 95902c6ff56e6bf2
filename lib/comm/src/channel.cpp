#include "channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "port.h"

namespace smp::shm {

Channel::Channel(Port& port, uint64_t id, int peer, Reader* reader)
    : port_(port), id_(id), peer_(peer), reader_(reader) {
  port_.open(*this);
  grant();
}

Channel::~Channel() { port_.close(*this); }

// In what has come as one: each begins at a line, with its header.
const MessageHeader& Channel::message_at(const Parcel& whole, size_t at) {
  return *reinterpret_cast<const MessageHeader*>(whole.data() + at);
}

size_t Channel::behind(const Parcel& whole, size_t at) {
  return end_of_line(at + sizeof(MessageHeader) + message_at(whole, at).bytes);
}

// Messages may overtake each other: what counts as arrived has no gap.
void Channel::arrive(Parcel* parcel) {
  const MessageHeader& header = parcel->header();
  hear_credits(header.granted);
  Parcel*& slot = slots_[header.index % uint64_t(kCredits)];
  if (header.index < emptied_ || header.index >= granted_ || slot != nullptr) {
    ++port_.counts_.unexpected;
    return port_.recycle(*parcel);
  }
  slot = parcel;
  for (size_t at = 0; reader_ != nullptr && at < parcel->bytes; at = behind(*parcel, at))
    reader_->came(message_at(*parcel, at));
  uint64_t arrived = arrived_.load();
  for (; came_ < emptied_ + uint64_t(kCredits); ++came_) {
    const Parcel* const next = slots_[came_ % uint64_t(kCredits)];
    if (next == nullptr) break;
    for (size_t at = 0; at < next->bytes; at = behind(*next, at)) ++arrived;
  }
  arrived_.store(arrived);
}

const MessageHeader& Channel::front() const {
  return message_at(*slots_[emptied_ % uint64_t(kCredits)], front_at_);
}

const std::byte* Channel::front_bytes() const {
  return slots_[emptied_ % uint64_t(kCredits)]->data() + front_at_ + sizeof(MessageHeader);
}

void Channel::take() {
  ++taken_;
  Parcel*& slot = slots_[emptied_ % uint64_t(kCredits)];
  front_at_ = behind(*slot, front_at_);
  if (front_at_ < slot->bytes) return;
  front_at_ = 0;
  ++emptied_;
  port_.recycle(*std::exchange(slot, nullptr));
  // Messages in the other direction carry the rest of the credits.
  if (emptied_ + uint64_t(kCredits) >= granted_ + uint64_t(kCredits) / 2) grant();
}

void Channel::grant() {
  granted_ = emptied_ + uint64_t(kCredits);
  port_.note(*this, MessageHeader::kGrant);
}

// What has joined goes before any program sends something else.
void Channel::hear_credits(uint64_t granted) {
  credits_.store(std::max(credits_.load(), granted));
  if (joined_ != nullptr && credits_.load() >= sent_) port_.send_joined(*this);
}

// Whatever it is, but no data. Notes may overtake each other.
void Channel::heard(const Note& whole) {
  const MessageHeader& note = whole.header;
  hear_credits(note.granted);
  switch (note.kind) {
    case MessageHeader::kClosed:
      closed_ = true;
      closed_at_ = note.index;
      closed_at_piece_ = note.exposed;
      return stops_at(note.exposed);
    case MessageHeader::kExposed: {
      const auto later = [](const Note& a, const Note& b) {
        return a.header.index < b.header.index;
      };
      invitations_.insert(std::upper_bound(invitations_.begin(), invitations_.end(), whole, later),
                          whole);
      uint64_t exposed = exposed_.load();
      for (const Note& invitation : invitations_)
        if (invitation.header.index == exposed) exposed = invitation.header.exposed;
      exposed_.store(exposed);
      break;
    }
    case MessageHeader::kRevoked:
      is_revoked_ = true;
      port_.withdraw(*this, true);
      port_.stop_writing(id_, peer_, written_);
      return;
    case MessageHeader::kStopped: return stops_at(note.exposed);
    case MessageHeader::kWaiting: waiting_ = note; break;
    default: return;
  }
  if (reader_ != nullptr) reader_->came(note);
}

// Said by who has been asked to stop, and by who has closed it.
void Channel::stops_at(uint64_t pieces) {
  if (!stopped_at_) stopped_at_ = pieces;
  if (is_let_go_ && has_all_written()) port_.take_back(*this);
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
    Note note;
    note.header = port_.header_of(*this, call);
    note.header.kind = MessageHeader::kExposed;
    note.header.index = pieces_posted_;
    size_t places = 0;
    while (posted_.size() < kPiecesAhead && !expected_.empty() && expected_.front().call == &call) {
      Expected& next = expected_.front();
      const int64_t bytes = std::min(next.bytes, port_.piece_bytes());
      const auto place = port_.receive_piece(*this, pieces_posted_, next.to, bytes);
      if (!place) {
        expected_.clear();
        break;
      }
      note.places[places++] = *place;
      ++pieces_posted_;
      next.to += bytes;
      next.bytes -= bytes;
      if (next.bytes == 0) expected_.pop_front();
    }
    note.header.exposed = pieces_posted_;
    if (places > 0) port_.note(note, places, peer_);
  }
}

void Channel::arrive_piece(Parcel& parcel) {
  std::erase(posted_, &parcel);
  ++written_here_;
  placed_.add(parcel.number);
  if (posted_.size() <= kPiecesAhead / 2) expose();
}

}  // namespace smp::shm
