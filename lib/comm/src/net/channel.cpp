#include "net/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/port.h"

namespace smp::net {

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
  return segment::end_of_line(at + sizeof(MessageHeader) + message_at(whole, at).bytes);
}

// Messages may overtake each other: what counts as arrived has no gap.
void Channel::arrive(Parcel* parcel) {
  const MessageHeader& header = parcel->header();
  hear_credits(header.granted);
  Parcel*& slot = slots_[header.index % uint64_t(mesh::kCredits)];
  if (header.index < emptied_ || header.index >= granted_ || slot != nullptr) {
    ++port_.counts_.unexpected;
    return port_.recycle(*parcel);
  }
  slot = parcel;
  for (size_t at = 0; reader_ != nullptr && at < parcel->bytes; at = behind(*parcel, at))
    reader_->came(message_at(*parcel, at));
  uint64_t arrived = arrived_.load();
  for (; came_ < emptied_ + uint64_t(mesh::kCredits); ++came_) {
    const Parcel* const next = slots_[came_ % uint64_t(mesh::kCredits)];
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
  Parcel*& slot = slots_[emptied_ % uint64_t(mesh::kCredits)];
  front_at_ = behind(*slot, front_at_);
  if (front_at_ < slot->bytes) return;
  front_at_ = 0;
  ++emptied_;
  port_.recycle(*std::exchange(slot, nullptr));
  if (!owes_credits()) return;
  came_ == granted_ ? grant() : hold_back();
}

// Messages in the other direction carry the rest.
bool Channel::owes_credits() const {
  return !closed_ && !is_let_go_ &&
         emptied_ + uint64_t(mesh::kCredits) >= granted_ + uint64_t(mesh::kCredits) / 2;
}

void Channel::grant() {
  granted_ = emptied_ + uint64_t(mesh::kCredits);
  port_.note(*this, MessageHeader::kGrant);
}

// What has joined goes before any program sends something else.
void Channel::hear_credits(uint64_t granted) {
  if (granted <= credits_.load()) return;
  credits_.store(granted);
  send_joined();
}

void Channel::send_joined() {
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
    case MessageHeader::kExposed: invited(whole); break;
    case MessageHeader::kRevoked:
      is_revoked_ = true;
      port_.withdraw(*this, true);
      port_.stop_writing(id_, peer_, written_);
      return;
    case MessageHeader::kStopped: return stops_at(note.exposed);
    case MessageHeader::kWaiting:
      if (note.number > waiting_.number) waiting_ = note;  // they may overtake each other
      break;
    default: return;
  }
  if (reader_ != nullptr) reader_->came(note);
}

// Said by who has been asked to stop, and by who has closed it.
void Channel::stops_at(uint64_t pieces) {
  if (!stopped_at_) stopped_at_ = pieces;
  if (is_let_go_ && has_all_written()) port_.take_back(*this);
}

void Channel::invited(const Note& note) {
  const auto later = [](const Note& a, const Note& b) { return a.header.index < b.header.index; };
  invitations_.insert(std::upper_bound(invitations_.begin(), invitations_.end(), note, later),
                      note);
  uint64_t exposed = exposed_.load();
  for (const Note& invitation : invitations_)
    if (invitation.header.index == exposed) exposed = invitation.header.exposed;
  exposed_.store(exposed);
}

// The first invitation's number is that of the call whose piece is the next.
Transport::Place Channel::take_place() {
  Note& note = invitations_.front();
  const uint64_t each = (note.header.exposed - note.header.index) / note.header.calls;
  const Transport::Place place = note.places[pieces_sent_++ - note.header.index];
  if (pieces_sent_ == note.header.exposed) {
    invitations_.pop_front();
  } else if ((pieces_sent_ - note.header.index) % each == 0) {
    ++note.header.number;
  }
  return place;
}

void Channel::tell_waiting(const progress::Call& call) {
  if (untold_.number == 0) port_.waiting_.push_back(this);
  untold_ = port_.header_of(*this, call);
  untold_.kind = MessageHeader::kWaiting;
  untold_.index = pieces_sent_;
}

void Channel::say_waiting() {
  const MessageHeader header = std::exchange(untold_, {});
  if (exposed_.load() == header.index && !is_let_go_ && !closed_) port_.note(header, peer_);
}

void Channel::expect(const progress::Call& call, std::byte* to, int64_t bytes) {
  expected_.push_back({&call, to, bytes, port_.piece_bytes(bytes)});
}

void Channel::hold() { posted_.empty() ? expose() : hold_back(); }

void Channel::hold_back() {
  if (std::find(port_.held_.begin(), port_.held_.end(), this) == port_.held_.end())
    port_.held_.push_back(this);
}

void Channel::send_held() {
  send_joined();
  expose();
  if (owes_credits()) grant();
}

// Calls of the same kind that follow each other are told as one.
void Channel::expose() {
  while (posted_.size() < kPiecesAhead && !expected_.empty()) {
    Note note;
    note.header = port_.header_of(*this, *expected_.front().call);
    note.header.kind = MessageHeader::kExposed;
    note.header.index = pieces_posted_;
    size_t places = 0, opened = 0;
    do {
      if (!expose_first(note, opened)) break;
      places = opened;
      ++note.header.calls;
    } while (is_followed_by_alike(note.header, places / note.header.calls));
    if (note.header.calls == 0) return;
    note.header.exposed = note.header.index + places;
    port_.note(note, places, peer_);
  }
}

// As many pieces of the first call as there is room for. False where there is no memory: then all
// of the job will end.
bool Channel::expose_first(Note& note, size_t& places) {
  const progress::Call* const call = expected_.front().call;
  while (posted_.size() < kPiecesAhead && !expected_.empty() && expected_.front().call == call) {
    Expected& next = expected_.front();
    const int64_t bytes = std::min(next.bytes, next.most);
    const auto place = port_.receive_piece(*this, pieces_posted_, next.to, bytes);
    if (!place) {
      expected_.clear();
      return false;
    }
    note.places[places++] = *place;
    ++pieces_posted_;
    next.to += bytes;
    next.bytes -= bytes;
    if (next.bytes == 0) expected_.pop_front();
  }
  return true;
}

// Whether all of `calls` is there, and the next that is expected is another like them, which there
// is room for.
bool Channel::is_followed_by_alike(const MessageHeader& calls, size_t pieces_of_each) const {
  if (expected_.empty() || posted_.size() + pieces_of_each > kPiecesAhead) return false;
  const progress::Call& next = *expected_.front().call;
  return next.op == mesh::CollectiveOp::kRecv && next.number == calls.number + calls.calls &&
         progress::fingerprint(next) == calls.fingerprint &&
         int64_t(pieces_of_each) == progress::div_up(next.bytes(), expected_.front().most);
}

void Channel::arrive_piece(Parcel& parcel) {
  std::erase(posted_, &parcel);
  ++written_here_;
  placed_.add(parcel.number);
  if (posted_.size() <= kPiecesAhead / 2) expose();
}

}  // namespace smp::net
