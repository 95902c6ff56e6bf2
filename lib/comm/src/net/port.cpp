#include "net/port.h"

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
constexpr int64_t kNoteReceives = 64;  // for the notes of all channels; more for each channel
constexpr int64_t kNotesPerChannel = 4;

}  // namespace

Port::Port(std::unique_ptr<Transport> transport, int rank, uint64_t secret, milliseconds silence)
    : transport_(std::move(transport)), rank_(rank), secret_(secret), silence_(silence) {
  Block buffers = make_block(kBuffers, kMessageSpace, Transport::Box::kData);
  for (const auto& parcel : buffers.parcels) {
    parcel->has_payload = true;
    free_buffers_.push_back(parcel.get());
  }
  blocks_.push_back(std::move(buffers));
  Block notes = make_block(kNoteReceives, sizeof(Note), Transport::Box::kNotes);
  for (const auto& parcel : notes.parcels) recycle(*parcel);
  blocks_.push_back(std::move(notes));
  // It may be refused; later nobody could be told.
  if (!takes_any_memory()) nowhere_ = transport_->allocate(size_t(kMostPieceBytes));
}

void Port::adopt(std::byte* begin, int64_t bytes) {
  auto memory = transport_->adopt(begin, size_t(bytes));
  if (memory != nullptr) adopted_.emplace(begin, Adopted{bytes, std::move(memory)});
}

void Port::forget(const std::byte* begin) { adopted_.erase(begin); }

// In which all of it lies; null: in none.
Transport::Memory* Port::adopted(const std::byte* begin, int64_t bytes) const {
  auto after = adopted_.upper_bound(begin);
  if (after == adopted_.begin()) return nullptr;
  const auto& [first, one] = *--after;
  return begin + bytes <= first + one.bytes ? one.memory.get() : nullptr;
}

Port::~Port() { transport_.reset(); }  // before the memory that it may write to

Port::Block Port::make_block(int64_t parcels, size_t bytes, Transport::Box box) {
  Block block;
  block.memory = transport_->allocate(size_t(parcels) * bytes);
  for (int64_t i = 0; i < parcels; ++i) {
    auto parcel = std::make_unique<Parcel>();
    parcel->memory = block.memory.get();
    parcel->at = size_t(i) * bytes;
    parcel->bytes = bytes;
    parcel->box = box;
    block.parcels.push_back(std::move(parcel));
  }
  return block;
}

void Port::open(Channel& channel) {
  add_receives(1);
  SMP_CHECK(channels_.emplace(channel.id_, &channel).second);
  if (const auto early = early_.find(channel.id_); early != early_.end()) {
    const Early said = std::move(early->second);
    early_.erase(early);
    counts_.early = int64_t(early_.size());
    channel.credits_.store(said.granted);
    for (const Note& note : said.notes) channel.heard(note);
  }
}

void Port::close(Channel& channel) {
  channel.send_joined();
  drop_joined(channel);
  if (!channel.quiet_) {
    if (!channel.closed_) note(channel, MessageHeader::kClosed);
  } else if (transport_->writes() && !channel.closed_) {
    note(channel, MessageHeader::kStopped);  // nobody may be here any more when its peer asks
  }
  for (Parcel* parcel : channel.slots_)
    if (parcel != nullptr) recycle(*parcel);
  std::erase(held_, &channel);
  std::erase(waiting_, &channel);
  channels_.erase(channel.id_);
  closed_.add(channel.id_, channel.written_);
  ++spare_receives_;
}

void Port::add_receives(int64_t channels) {
  if (spare_receives_ >= channels) {
    spare_receives_ -= channels;
    return;
  }
  Block data = make_block(channels * mesh::kCredits, kMessageSpace, Transport::Box::kData);
  Block notes = make_block(channels * kNotesPerChannel, sizeof(Note), Transport::Box::kNotes);
  blocks_.push_back(std::move(data));
  blocks_.push_back(std::move(notes));
  for (auto block = blocks_.end() - 2; block != blocks_.end(); ++block)
    for (const auto& parcel : block->parcels) recycle(*parcel);
}

// Makes a receive wait for the next message.
void Port::recycle(Parcel& receive) {
  receive.bytes = receive.box == Transport::Box::kData ? kMessageSpace : sizeof(Note);
  receive.peer = -1;
  submit(receive);
}

void Port::submit(Parcel& parcel) {
  parcel.error.clear();
  if (has_ended_) {
    if (parcel.box == Transport::Box::kNotes && parcel.peer >= 0) free_notes_.push_back(&parcel);
    return;
  }
  if (parcel.peer >= 0) ++in_flight_;
  // What waits already goes first.
  const bool there_is_room =
      again_.empty() && (parcel.peer < 0 ? transport_->receive(parcel) : transport_->send(parcel));
  if (!there_is_room) again_.push_back(&parcel);
}

bool Port::try_again() {
  bool moved = false;
  for (size_t left = again_.size(); left > 0; --left) {
    Parcel* parcel = again_.front();
    again_.pop_front();
    const bool done = parcel->peer < 0 ? transport_->receive(*parcel) : transport_->send(*parcel);
    if (!done) again_.push_back(parcel);  // another peer's may have room
    moved |= done;
  }
  return moved;
}

bool Port::poll() {
  if (has_ended_) {
    questions_.clear();
    return false;
  }
  bool moved = !again_.empty() && try_again();
  // Programs have had a turn since it was asked, so that they have begun what was called before.
  for (const MessageHeader& question : std::exchange(questions_, {})) answer(question);
  complete_.clear();
  transport_->poll(complete_);
  for (Transport::Transfer* transfer : complete_) completed(static_cast<Parcel&>(*transfer));
  return moved || !complete_.empty();
}

void Port::send_held() {
  for (Channel* const channel : std::exchange(held_, {})) channel->send_held();
}

void Port::say_waiting() {
  send_held();
  for (Channel* const channel : std::exchange(waiting_, {})) channel->say_waiting();
}

void Port::flush(milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (in_flight_ > 0 && !has_ended_ && Clock::now() < end)
    if (!poll()) std::this_thread::yield();
}

void Port::completed(Parcel& parcel) {
  if (parcel.peer >= 0) {
    --in_flight_;
    if (!parcel.error.empty())
      troubles_.emplace(parcel.peer, Trouble{fmt::format("no message reaches rank {} any more: {}",
                                                         parcel.peer, parcel.error),
                                             Clock::now()});
    if (parcel.box == Transport::Box::kNotes)
      free_notes_.push_back(&parcel);
    else
      has_left(parcel);
  } else if (parcel.box == Transport::Box::kStraight) {
    received_piece(parcel);
  } else if (!parcel.error.empty()) {
    recycle(parcel);
  } else {
    received(parcel);
  }
}

void Port::received(Parcel& parcel) {
  const MessageHeader& header = parcel.header();
  if (parcel.bytes < sizeof(MessageHeader) || header.secret != secret_ ||
      parcel.bytes != sizeof(MessageHeader) + size_t(parcel.content())) {
    ++counts_.strangers;
    return recycle(parcel);
  }
  if (const auto asked = asked_.find(header.from); asked != asked_.end())
    asked->second.are_open = false;
  if (header.kind == MessageHeader::kAsk || header.kind == MessageHeader::kHere) {
    const MessageHeader said = header;
    recycle(parcel);
    if (said.kind == MessageHeader::kHere) return answered(said);
    return questions_.push_back(said);
  }
  const auto found = channels_.find(header.channel);
  if (header.kind == MessageHeader::kData) {
    if (found != channels_.end()) return found->second->arrive(&parcel);
    return recycle(parcel);  // for a channel that has been closed
  }
  Note said{header};
  if (header.bytes <= sizeof(said.places)) memcpy(said.places, parcel.note().places, header.bytes);
  recycle(parcel);
  if (found != channels_.end()) return found->second->heard(said);
  const auto written = closed_.written_by(said.header.channel);
  if (said.header.kind == MessageHeader::kRevoked)
    stop_writing(said.header.channel, said.header.from, written.value_or(0));
  if (written) return;
  Early& early = early_[said.header.channel];
  counts_.early = int64_t(early_.size());
  early.granted = std::max(early.granted, said.header.granted);
  if (said.header.kind != MessageHeader::kGrant) early.notes.push_back(said);
}

std::byte* Port::payload() const { return free_buffers_.back()->data() + sizeof(MessageHeader); }

// At first what is in a payload, then whatever goes on in a caller's memory.
void Port::send(Channel& channel, const progress::Call& call, int64_t bytes) {
  channel.send_joined();
  SMP_CHECK(channel.sent_ < channel.credits_.load() && bytes <= mesh::kMessageBytes);
  Parcel& parcel = *free_buffers_.back();
  free_buffers_.pop_back();
  MessageHeader header = header_of(channel, call);
  header.index = channel.sent_++;
  parcel.bytes = sizeof(MessageHeader) + size_t(bytes);
  begin(parcel, channel, header, bytes);
}

// Messages in the other direction are told how many of theirs there is room for.
MessageHeader Port::header_of(const Channel& channel, const progress::Call& call) const {
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

void Port::begin(Parcel& parcel, Channel& channel, const MessageHeader& its_header, int64_t bytes) {
  parcel.header() = its_header;
  parcel.header().bytes = uint32_t(bytes);
  count_in_flight(bytes);
  submit_data(parcel, channel);
}

void Port::count_in_flight(int64_t bytes) {
  counts_.bytes_in_flight += bytes;
  counts_.most_in_flight = std::max(counts_.most_in_flight, counts_.bytes_in_flight);
  SMP_CHECK(counts_.bytes_in_flight <= mesh::kWindowBytes);
}

void Port::submit_data(Parcel& parcel, Channel& channel) {
  MessageHeader& header = parcel.header();
  // Its peer reads it, unless it goes straight.
  if (parcel.box == Transport::Box::kData)
    header.granted = channel.granted_ = channel.emptied_ + uint64_t(mesh::kCredits);
  header.secret = secret_;
  header.kind = MessageHeader::kData;
  header.from = rank_;
  parcel.peer = channel.peer_;
  if (parcel.box == Transport::Box::kData) channel.submitted_.store(header.index + 1);
  ++counts_.messages;
  submit(parcel);
}

void Port::note(const Channel& channel, MessageHeader::Kind kind) {
  MessageHeader header{};
  header.channel = channel.id_;
  header.index = channel.sent_;
  header.exposed = channel.written_;
  header.granted = channel.granted_;
  header.kind = kind;
  note(header, channel.peer_);
}

Parcel* Port::spare_note() {
  if (free_notes_.empty()) {
    blocks_.push_back(make_block(kNoteReceives, sizeof(Note), Transport::Box::kNotes));
    for (const auto& parcel : blocks_.back().parcels) free_notes_.push_back(parcel.get());
  }
  Parcel* const parcel = free_notes_.back();
  free_notes_.pop_back();
  parcel->bytes = sizeof(MessageHeader);
  return parcel;
}

Parcel* Port::spare_note_for(int peer) {
  try {
    return spare_note();
  } catch (const std::exception& error) {
    const std::string text = fmt::format("rank {} has no memory for a message to rank {}: {}",
                                         rank_, peer, error.what());
    troubles_.emplace(peer, Trouble{text, Clock::now()});
    return nullptr;
  }
}

void Port::note(const MessageHeader& header, int to) {
  Parcel* const parcel = spare_note_for(to);
  if (parcel == nullptr) return;
  parcel->header() = header;
  parcel->header().secret = secret_;
  parcel->header().from = rank_;
  parcel->peer = to;
  submit(*parcel);
}

void Port::note(const Note& note, size_t places, int to) {
  Parcel* const parcel = spare_note_for(to);
  if (parcel == nullptr) return;
  parcel->note() = note;
  parcel->header().secret = secret_;
  parcel->header().from = rank_;
  parcel->header().bytes = uint32_t(places * sizeof(Transport::Place));
  parcel->bytes += parcel->header().bytes;
  parcel->peer = to;
  submit(*parcel);
}

}  // namespace smp::net
