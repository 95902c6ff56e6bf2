#include "port.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "smp/plan/check.h"

namespace smp::shm {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMessageSpace = size_t(kMessageBytes + kMessageHeaderBytes);
constexpr int64_t kBuffers = kWindowBytes / kMessageBytes;
constexpr int64_t kNoteReceives = 64;  // for the notes of all channels; more for each channel
constexpr int64_t kNotesPerChannel = 4;
constexpr milliseconds kGrace{300};  // for a better reason than an error of the network
constexpr milliseconds kAskEvery{500};

}  // namespace

Port::Port(std::unique_ptr<Transport> transport, int rank, uint64_t secret, milliseconds silence)
    : transport_(std::move(transport)), rank_(rank), secret_(secret), silence_(silence) {
  Block buffers = make_block(kBuffers, kMessageSpace, Transport::Box::kData);
  for (const auto& transfer : buffers.transfers) free_buffers_.push_back(transfer.get());
  blocks_.push_back(std::move(buffers));
  freed_.store(uint64_t(kBuffers));
  Block notes = make_block(kNoteReceives, sizeof(MessageHeader), Transport::Box::kNotes);
  for (const auto& transfer : notes.transfers) recycle(*transfer);
  blocks_.push_back(std::move(notes));
}

Port::~Port() { transport_.reset(); }  // before the memory that it may write to

Port::Block Port::make_block(int64_t transfers, size_t bytes, Transport::Box box) {
  Block block;
  block.memory = transport_->allocate(size_t(transfers) * bytes);
  for (int64_t i = 0; i < transfers; ++i) {
    auto transfer = std::make_unique<Transfer>();
    transfer->memory = block.memory.get();
    transfer->at = size_t(i) * bytes;
    transfer->bytes = bytes;
    transfer->box = box;
    block.transfers.push_back(std::move(transfer));
  }
  return block;
}

void Port::open(Channel& channel) {
  add_receives(1);
  SMP_CHECK(channels_.emplace(channel.id_, &channel).second);
  if (const auto early = early_.find(channel.id_); early != early_.end()) {
    channel.credits_.store(early->second.granted);
    channel.closed_ = early->second.closed;
    channel.closed_at_ = early->second.closed_at;
    early_.erase(early);
  }
}

void Port::close(Channel& channel) {
  if (!channel.closed_ && !channel.quiet_) note(channel, MessageHeader::kClosed);
  for (Transfer* transfer : channel.slots_)
    if (transfer != nullptr) recycle(*transfer);
  channels_.erase(channel.id_);
  ++spare_receives_;
}

void Port::add_receives(int64_t channels) {
  if (spare_receives_ >= channels) {
    spare_receives_ -= channels;
    return;
  }
  Block data = make_block(channels * kCredits, kMessageSpace, Transport::Box::kData);
  Block notes =
      make_block(channels * kNotesPerChannel, sizeof(MessageHeader), Transport::Box::kNotes);
  blocks_.push_back(std::move(data));
  blocks_.push_back(std::move(notes));
  for (auto block = blocks_.end() - 2; block != blocks_.end(); ++block)
    for (const auto& transfer : block->transfers) recycle(*transfer);
}

// Makes a receive wait for the next message.
void Port::recycle(Transfer& receive) {
  receive.bytes = receive.box == Transport::Box::kData ? kMessageSpace : sizeof(MessageHeader);
  receive.peer = -1;
  submit(receive);
}

void Port::submit(Transfer& transfer) {
  transfer.error.clear();
  if (transfer.peer >= 0) ++in_flight_;
  // What waits already goes first.
  const bool there_is_room = again_.empty() && (transfer.peer < 0 ? transport_->receive(transfer)
                                                                  : transport_->send(transfer));
  if (!there_is_room) again_.push_back(&transfer);
}

bool Port::try_again() {
  bool moved = false;
  for (size_t left = again_.size(); left > 0; --left) {
    Transfer* transfer = again_.front();
    again_.pop_front();
    const bool done =
        transfer->peer < 0 ? transport_->receive(*transfer) : transport_->send(*transfer);
    if (!done) again_.push_back(transfer);  // another peer's may have room
    moved |= done;
  }
  return moved;
}

bool Port::poll() {
  bool moved = !again_.empty() && try_again();
  // Programs have had a turn since it was asked, so that they have begun what was called before.
  for (const MessageHeader& question : std::exchange(questions_, {})) answer(question);
  complete_.clear();
  transport_->poll(complete_);
  for (Transfer* transfer : complete_) completed(*transfer);
  return moved || !complete_.empty();
}

void Port::flush(milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (in_flight_ > 0 && troubles_.empty() && Clock::now() < end)
    if (!poll()) std::this_thread::yield();
}

void Port::completed(Transfer& transfer) {
  if (transfer.peer >= 0) {
    --in_flight_;
    if (!transfer.error.empty())
      troubles_.emplace(transfer.peer, Trouble{transfer.error, Clock::now()});
    if (transfer.box == Transport::Box::kNotes) {
      free_notes_.push_back(&transfer);
    } else {
      counts_.bytes_in_flight -= int64_t(transfer.bytes);
      free_buffers_.push_back(&transfer);
      freed_.fetch_add(1);
    }
  } else if (!transfer.error.empty()) {
    recycle(transfer);
  } else {
    received(transfer);
  }
}

void Port::received(Transfer& transfer) {
  const auto& header = *reinterpret_cast<const MessageHeader*>(transfer.data());
  if (transfer.bytes < sizeof(MessageHeader) || header.secret != secret_ ||
      transfer.bytes != sizeof(MessageHeader) + header.bytes) {
    ++counts_.strangers;
    return recycle(transfer);
  }
  if (const auto asked = asked_.find(header.from); asked != asked_.end())
    asked->second.are_open = false;
  if (header.kind == MessageHeader::kAsk || header.kind == MessageHeader::kHere) {
    const MessageHeader said = header;
    recycle(transfer);
    if (said.kind == MessageHeader::kHere) return answered(said);
    return questions_.push_back(said);
  }
  const auto found = channels_.find(header.channel);
  if (header.kind == MessageHeader::kData) {
    if (found != channels_.end()) return found->second->arrive(&transfer);
    return recycle(transfer);  // for a channel that has been closed
  }
  const bool closes = header.kind == MessageHeader::kClosed;
  if (found != channels_.end()) {
    Channel& channel = *found->second;
    channel.credits_.store(std::max(channel.credits_.load(), header.granted));
    if (closes) channel.closed_at_ = header.index;
    channel.closed_ |= closes;
  } else {
    Early& early = early_[header.channel];
    early.granted = std::max(early.granted, header.granted);
    if (closes) early.closed_at = header.index;
    early.closed |= closes;
  }
  recycle(transfer);
}

std::byte* Port::payload() const { return free_buffers_.back()->data() + sizeof(MessageHeader); }

void Port::send(Channel& channel, const Call& call, int64_t bytes) {
  SMP_CHECK(channel.sent_ < channel.credits_.load() && bytes <= kMessageBytes);
  Transfer* transfer = free_buffers_.back();
  free_buffers_.pop_back();
  ++used_;
  MessageHeader header{};
  header.secret = secret_;
  header.channel = channel.id_;
  header.index = channel.sent_++;
  header.granted = channel.granted_ = channel.taken_ + uint64_t(kCredits);
  header.fingerprint = fingerprint(call);
  header.number = call.number;
  header.count = call.count;
  header.kind = MessageHeader::kData;
  header.from = rank_;
  header.root = call.peer;
  header.bytes = uint32_t(bytes);
  header.op = uint8_t(call.op);
  header.dtype = uint8_t(call.dtype);
  header.reduce_op = uint8_t(call.reduce_op);
  memcpy(header.label, call.label.data(), std::min(call.label.size(), kLabelBytes - 1));
  memcpy(transfer->data(), &header, sizeof(header));
  transfer->peer = channel.peer_;
  transfer->bytes = sizeof(MessageHeader) + size_t(bytes);
  ++counts_.messages;
  counts_.bytes_in_flight += int64_t(transfer->bytes);
  counts_.most_in_flight = std::max(counts_.most_in_flight, counts_.bytes_in_flight);
  submit(*transfer);
}

void Port::note(const Channel& channel, MessageHeader::Kind kind) {
  MessageHeader header{};
  header.channel = channel.id_;
  header.index = channel.sent_;
  header.granted = channel.granted_;
  header.kind = kind;
  note(header, channel.peer_);
}

void Port::note(MessageHeader header, int to) {
  if (free_notes_.empty()) {
    Block block = make_block(kNoteReceives, sizeof(MessageHeader), Transport::Box::kNotes);
    for (const auto& transfer : block.transfers) free_notes_.push_back(transfer.get());
    blocks_.push_back(std::move(block));
  }
  Transfer* transfer = free_notes_.back();
  free_notes_.pop_back();
  header.secret = secret_;
  header.from = rank_;
  memcpy(transfer->data(), &header, sizeof(header));
  transfer->peer = to;
  transfer->bytes = sizeof(MessageHeader);
  submit(*transfer);
}

std::optional<std::string> Port::unreachable(int rank) {
  const auto now = Clock::now();
  if (const auto found = troubles_.find(rank);
      found != troubles_.end() && now - found->second.since >= kGrace)
    return fmt::format("no message reaches rank {} any more: {}", rank, found->second.text);
  Questions& asked = asked_[rank];
  if (now - asked.last < kAskEvery) return std::nullopt;
  // Time in which this rank did not ask, for it did not wait or was itself stopped, does not count.
  if (!asked.are_open)
    asked.since = now;
  else if (now - asked.last > 2 * kAskEvery)
    asked.since += now - asked.last;
  if (now - asked.since >= silence_)
    return fmt::format(
        "nothing has come from rank {} for {:g} s, though it lives: its host and that of rank {} "
        "do not reach each other",
        rank, std::chrono::duration<double>(silence_).count(), rank_);
  asked.are_open = true;
  asked.last = now;
  MessageHeader question{};
  question.kind = MessageHeader::kAsk;
  note(question, rank);
  return std::nullopt;
}

void Port::introduce(std::vector<int> host_of, Witness witness) {
  host_of_ = std::move(host_of);
  witness_ = std::move(witness);
}

// One text has to do: that of whoever must be named.
void Port::answer(const MessageHeader& question) {
  MessageHeader answer{};
  answer.kind = MessageHeader::kHere;
  answer.index = question.index;
  if (question.index != 0) {
    const auto group = groups_.find(question.channel);
    const Standing own = witness_(
        group == groups_.end() ? std::nullopt : group->second->awaited_in(question.number));
    const bool of_awaited = own.has_called && own.waits_for >= 0;
    const std::string& text = of_awaited ? own.last_call_of_awaited : own.last_call;
    answer.op = own.has_called;
    answer.root = own.waits_for;
    memcpy(answer.label, text.data(), std::min(text.size(), kLabelBytes - 1));
  }
  note(answer, question.from);
}

void Port::answered(const MessageHeader& header) {
  for (auto& [about, inquiry] : inquiries_) {
    if (header.index == 0 || inquiry.question != header.index) continue;
    Standing said;
    said.has_called = header.op != 0;
    said.waits_for = header.root;
    const bool of_awaited = said.has_called && said.waits_for >= 0;
    (of_awaited ? said.last_call_of_awaited : said.last_call) = header.label;
    inquiry.standing = said;
  }
}

std::optional<Standing> Port::ask(int rank, uint64_t key, uint64_t number,
                                  Clock::time_point since) {
  Inquiry& inquiry = inquiries_[{rank, key, number}];
  if (inquiry.question == 0 || inquiry.asked < since) {
    const auto now = Clock::now();
    const bool is_open = inquiry.question != 0 && !inquiry.standing;
    inquiry = {++inquired_, now, is_open ? inquiry.open_since : now, std::nullopt};
    MessageHeader question{};
    question.kind = MessageHeader::kAsk;
    question.channel = key;
    question.number = number;
    question.index = inquiry.question;
    note(question, rank);
  }
  if (inquiry.standing) return inquiry.standing;
  // One that has not answered for a while will not now.
  const auto asked = asked_.find(rank);
  const bool is_open = asked != asked_.end() && asked->second.are_open;
  const auto open_since = is_open ? asked->second.since : inquiry.open_since;
  if (Clock::now() - std::min(open_since, inquiry.open_since) < mute_after()) return std::nullopt;
  Standing mute;
  mute.is_mute = true;
  return mute;
}

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
  return *reinterpret_cast<const MessageHeader*>(slots_[taken_ % uint64_t(kCredits)]->data());
}

const std::byte* Channel::front_bytes() const {
  return slots_[taken_ % uint64_t(kCredits)]->data() + sizeof(MessageHeader);
}

// Messages may overtake each other: what counts as arrived has no gap.
void Channel::arrive(Transport::Transfer* transfer) {
  const auto& header = *reinterpret_cast<const MessageHeader*>(transfer->data());
  credits_.store(std::max(credits_.load(), header.granted));
  Transport::Transfer*& slot = slots_[header.index % uint64_t(kCredits)];
  if (header.index < taken_ || header.index >= granted_ || slot != nullptr) {
    ++port_.counts_.unexpected;
    return port_.recycle(*transfer);
  }
  slot = transfer;
  if (reader_ != nullptr) reader_->came(header);
  uint64_t arrived = arrived_.load();
  while (arrived < taken_ + uint64_t(kCredits) && slots_[arrived % uint64_t(kCredits)] != nullptr)
    ++arrived;
  arrived_.store(arrived);
}

void Channel::take() {
  Transport::Transfer*& slot = slots_[taken_ % uint64_t(kCredits)];
  port_.recycle(*std::exchange(slot, nullptr));
  ++taken_;
  // Messages in the other direction carry the rest of the credits.
  if (taken_ + uint64_t(kCredits) >= granted_ + uint64_t(kCredits) / 2) grant();
}

void Channel::grant() {
  granted_ = taken_ + uint64_t(kCredits);
  port_.note(*this, MessageHeader::kGrant);
}

}  // namespace smp::shm
