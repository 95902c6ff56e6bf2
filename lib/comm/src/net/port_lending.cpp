#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "net/group_keys.h"
#include "net/port.h"
#include "reduce/copy.h"
#include "smp/plan/base/check.h"
#include "waiting/looking.h"

// Messages that are sent from and received into the memory of callers: nobody copies them. A call
// ends only when the network touches its memory no more.
namespace smp::net {

using Box = Transport::Box;
using std::chrono::milliseconds;

namespace {

// Who is asked to stop writing answers within this, or its job is over, or it does not live.
constexpr milliseconds kLastWord{100}, kLastWordOfTheLiving{3000};

}  // namespace

bool Port::has_room(const Channel& channel, int64_t bytes) const {
  const bool is_full = channel.lent_bytes_ > 0 && channel.lent_bytes_ + bytes > kChannelWindow;
  return !free_buffers_.empty() && !is_full &&
         counts_.bytes_in_flight + bytes <= mesh::kWindowBytes;
}

void Port::send_from(Channel& channel, const progress::Call& call, const std::byte* from,
                     int64_t bytes, int64_t head) {
  channel.send_joined();
  SMP_CHECK(channel.sent_ < channel.credits_.load() && head + bytes <= mesh::kMessageBytes);
  MessageHeader header = header_of(channel, call);
  header.index = channel.sent_++;
  lend(channel, header, from, bytes, nullptr, head);
}

void Port::send_piece(Channel& channel, const progress::Call& call, const std::byte* from,
                      int64_t bytes) {
  SMP_CHECK(channel.pieces_sent_ < channel.exposed_.load() && bytes <= kMostPieceBytes);
  MessageHeader header = header_of(channel, call);
  header.index = channel.pieces_sent_;
  const Transport::Place place = channel.take_place();
  if (channel.is_revoked_) return channel.left_.add(channel.lent_++);
  lend(channel, header, from, bytes, &place);
}

// A piece's place says all that the header does, which stays here.
void Port::lend(Channel& channel, const MessageHeader& header, const std::byte* from, int64_t bytes,
                const Transport::Place* place, int64_t head) {
  Transport::Memory* const memory = takes_any_memory() ? nullptr : adopted(from, bytes);
  const bool is_copied = !takes_any_memory() && memory == nullptr;
  SMP_CHECK(head == 0 || !is_copied);
  const bool has_payload = is_copied || head > 0;
  Parcel& parcel = has_payload ? *free_buffers_.back() : *spare_note();
  parcel.box = Box::kData;
  parcel.bytes = sizeof(MessageHeader) + size_t(head);
  parcel.rest_memory = memory;
  if (has_payload) free_buffers_.pop_back();
  if (is_copied) {
    reduce::copy_bytes(parcel.data() + sizeof(MessageHeader), from, bytes);
    from = parcel.data() + sizeof(MessageHeader);
    parcel.rest_memory = parcel.memory;
  }
  if (place != nullptr) {
    parcel.box = Box::kStraight;
    parcel.place = *place;
    parcel.bytes = 0;
    ++channel.written_;
  }
  parcel.channel = &channel;
  parcel.number = channel.lent_++;
  parcel.rest = const_cast<std::byte*>(from);  // a transport reads what it sends
  parcel.rest_bytes = size_t(bytes);
  channel.lent_bytes_ += bytes;
  begin(parcel, channel, header, head + bytes);
}

// Nobody else can tell where a piece goes.
uint64_t Port::secret_of(const Channel& channel, uint64_t number) const {
  return mix(mix(mix(channel.id_, secret_), uint64_t(channel.peer_)), number);
}

void Port::has_left(Parcel& parcel) {
  counts_.bytes_in_flight -= parcel.content();
  if (Channel* const channel = std::exchange(parcel.channel, nullptr)) {
    channel->lent_bytes_ -= int64_t(parcel.rest_bytes);
    channel->left_.add(parcel.number);
  }
  parcel.rest = nullptr;
  parcel.rest_bytes = 0;
  parcel.rest_memory = nullptr;
  parcel.place = {};
  freed_.fetch_add(1);
  parcel.box = parcel.has_payload ? Box::kData : Box::kNotes;
  (parcel.has_payload ? free_buffers_ : free_notes_).push_back(&parcel);
}

// For a piece that comes to memory of the port.
Parcel* Port::spare_landing() {
  if (free_landings_.empty()) {
    Block block = make_block(kPiecesAhead, size_t(mesh::kMessageBytes), Box::kStraight);
    for (const auto& parcel : block.parcels) free_landings_.push_back(parcel.get());
    blocks_.push_back(std::move(block));
  }
  Parcel* const parcel = free_landings_.back();
  free_landings_.pop_back();
  return parcel;
}

// Nothing if the network refuses the memory; whoever waits for it is told why.
std::optional<Transport::Place> Port::receive_piece(Channel& channel, uint64_t number,
                                                    std::byte* to, int64_t bytes) {
  const auto refuse = [&](const std::string& why) {
    const std::string text =
        fmt::format("rank {} cannot open {} bytes of its memory to rank {}: {}", rank_, bytes,
                    channel.peer_, why);
    troubles_.emplace(channel.peer_, Trouble{text, Clock::now()});
    return std::nullopt;
  };
  Transport::Memory* const memory = takes_any_memory() ? nullptr : adopted(to, bytes);
  const bool lands = !takes_any_memory() && memory == nullptr;
  Parcel* spare = nullptr;
  try {  // in a call that is being made, or on the engine's thread: nobody there would catch it
    spare = lands ? spare_landing() : spare_note();
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
  Parcel& parcel = *spare;
  parcel.rest = to;
  parcel.rest_memory = memory;
  if (lands) {
    parcel.home = to;
    parcel.rest = parcel.data();
    parcel.rest_memory = parcel.memory;
  }
  parcel.box = Box::kStraight;
  parcel.channel = &channel;
  parcel.number = number;
  parcel.peer = -1;
  parcel.bytes = 0;
  parcel.rest_bytes = size_t(bytes);
  parcel.error.clear();
  if (!has_ended_) transport_->expose(parcel, secret_of(channel, number));
  if (!parcel.error.empty()) {
    has_ended(parcel);
    return refuse(parcel.error);
  }
  channel.posted_.push_back(&parcel);
  if (!transport_->writes()) submit(parcel);
  return parcel.place;
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
    if (parcel.home != nullptr)
      reduce::copy_bytes(parcel.home, parcel.rest, int64_t(parcel.rest_bytes));
    channel->arrive_piece(parcel);
  } else if (channel != nullptr) {
    std::erase(channel->posted_, &parcel);
    if (parcel.error.empty()) ++channel->written_here_;
    if (channel->has_all_written()) take_back(*channel);
  }
  has_ended(parcel);
}

void Port::has_ended(Parcel& piece) {
  piece.channel = nullptr;
  piece.rest = nullptr;
  piece.rest_bytes = 0;
  piece.rest_memory = nullptr;
  piece.place = {};
  if (std::exchange(piece.home, nullptr) != nullptr) return free_landings_.push_back(&piece);
  piece.box = Box::kNotes;
  free_notes_.push_back(&piece);
}

// Who writes is asked to stop, and says how much it has written: what that is shall come before the
// memory is its caller's again, for to close a place does not end a write that has begun.
void Port::call_back(Channel& channel) {
  channel.is_let_go_ = true;
  drop_joined(channel);
  channel.expected_.clear();
  if (!transport_->writes())
    for (const Parcel* const piece : channel.posted_) receive_nowhere(*piece);
  withdraw(channel, false);
  if (!transport_->writes()) return take_back(channel);
  if (channel.has_all_written()) return take_back(channel);
  // Who has closed the channel has said it already, and may be gone.
  if (!channel.posted_.empty() && !channel.closed_) note(channel, MessageHeader::kRevoked);
}

// What its peer may still send shall find a receive, or it would be in the way of other channels'
// messages.
void Port::receive_nowhere(const Parcel& piece) {
  Parcel* const instead = spare_note_for(piece.channel->peer_);
  if (instead == nullptr) return;
  if (nowhere_ == nullptr) nowhere_ = transport_->allocate(size_t(kMostPieceBytes));
  instead->box = Box::kStraight;
  instead->place = piece.place;
  instead->channel = nullptr;
  instead->peer = -1;
  instead->bytes = 0;
  instead->rest = nowhere_->data();
  instead->rest_memory = nowhere_.get();
  instead->rest_bytes = piece.rest_bytes;
  submit(*instead);
}

// What the network had no room for yet.
void Port::withdraw(Channel& channel, bool only_pieces) {
  std::vector<Parcel*> kept_back;
  std::erase_if(again_, [&](Parcel* parcel) {
    const bool is_meant =
        parcel->channel == &channel && (!only_pieces || parcel->box == Box::kStraight);
    if (is_meant) kept_back.push_back(parcel);
    return is_meant;
  });
  for (Parcel* const parcel : kept_back) {
    if (parcel->peer < 0) {
      received_piece(*parcel);
      continue;
    }
    if (parcel->box == Box::kStraight) --channel.written_;
    --in_flight_;
    has_left(*parcel);
  }
}

// Also for a channel that has been closed here, or is not open yet.
void Port::stop_writing(uint64_t channel, int to, uint64_t written) {
  MessageHeader header{};
  header.channel = channel;
  header.kind = MessageHeader::kStopped;
  header.exposed = written;
  note(header, to);
}

void Port::take_back(Channel& channel) {
  for (Parcel* const piece : std::vector<Parcel*>(channel.posted_)) transport_->cancel(*piece);
}

// What a rank has sent before it left may come later than the word that it has.
void Port::take_back_unopened(const std::vector<Channel*>& channels,
                              const std::function<bool(int)>& has_gone) {
  for (Channel* const channel : channels)
    if (!channel->posted_.empty() && channel->credits_.load() == 0 && has_gone(channel->peer_))
      take_back(*channel);
}

bool Port::let_go(const std::vector<Channel*>& channels, milliseconds limit,
                  const std::function<bool()>& is_over,
                  const std::function<bool(int rank)>& has_gone) {
  for (Channel* const channel : channels)
    if (!channel->is_let_go_) call_back(*channel);
  auto are_idle = [&] {
    return std::all_of(channels.begin(), channels.end(),
                       [](const Channel* channel) { return channel->is_idle(); });
  };
  waiting::Looking looking;
  auto is_late = [&] {
    looking.look(Clock::now());
    const auto waited = looking.looked_for();
    const bool has_sent = std::all_of(channels.begin(), channels.end(),
                                      [](const Channel* channel) { return channel->has_sent(); });
    if (transport_->writes() && waited > kLastWord) {
      if (is_over()) return true;
      take_back_unopened(channels, has_gone);
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

void Port::end_network() {
  transport_->close();
  has_ended_ = true;
  again_.clear();
  in_flight_ = 0;
}

}  // namespace smp::net
