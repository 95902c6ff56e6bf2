#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "net/wire_message.h"
#include "progress/call.h"

namespace smp::net {

class NetworkEndpoint;

// Hears of the messages of a call as they arrive, under the engine's lock.
class MessageListener {
 public:
  virtual ~MessageListener() = default;
  virtual void on_message(const MessageHeader& header) = 0;
  // The rank of the job that this rank waits for in its group's call `number`, or in an earlier
  // one; -1: none. Nothing if this rank has not made the call.
  virtual std::optional<int> awaited_in(uint64_t) const { return std::nullopt; }
};

// A set of numbers that are added in any order. end() is the first number that is missing: all
// below it are there.
class ContiguousPrefix {
 public:
  const std::atomic<uint64_t>& end() const { return end_; }
  void add(uint64_t number) {
    const uint64_t end = end_.load();
    if (came_.size() <= number - end) came_.resize(number - end + 1);
    came_[number - end] = true;
    uint64_t more = 0;
    for (; !came_.empty() && came_.front(); came_.pop_front()) ++more;
    end_.store(end + more);
  }

 private:
  std::atomic<uint64_t> end_{0};
  std::deque<bool> came_;  // from end_ on
};

// Messages in both directions between this rank and a rank of another host, for one purpose of one
// group. Each direction keeps its order and has credits of its own: a message is sent only when its
// receiver has a buffer ready, so no channel ever waits for another. Programs await the counters;
// everything else happens under the engine's lock.
//
// Zero-copy transfers are the second half of a channel. Data too long for one message goes in
// pieces, straight from the sender's memory to the receiver's. The receiver exposes its caller's
// memory and sends a receive advertisement (ready to receive, RTR) with the remote buffers, in the
// order of its calls. The sender then sends the pieces there.
class Channel {
 public:
  Channel(NetworkEndpoint& endpoint, uint64_t id, int peer, MessageListener* listener = nullptr);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int peer() const { return peer_; }

  // To send: await credits() >= sent() + 1, then room in the endpoint, then send. If the channel
  // coalesces(), a message may join others in one buffer. Coalesced messages are on their way when
  // submitted() has reached sent().
  const std::atomic<uint64_t>& credits() const { return credits_; }
  uint64_t sent() const { return sent_; }
  const std::atomic<uint64_t>& submitted() const { return submitted_; }
  // True while the peer is behind by half of its credits.
  bool coalesces() const {
    return coalesced_ != nullptr || sent_ + uint64_t(mesh::kCredits) / 2 >= credits_.load();
  }

  // To receive: await arrived() >= taken() + 1, look at front(), then take it.
  const std::atomic<uint64_t>& arrived() const { return arrived_; }
  uint64_t taken() const { return taken_; }
  const MessageHeader& front() const;
  const std::byte* front_bytes() const;
  void take();

  // To send pieces: await advertised() >= pieces_sent() + 1. advertisement() tells whose call it is
  // for.
  const std::atomic<uint64_t>& advertised() const { return advertised_; }
  uint64_t pieces_sent() const { return pieces_sent_; }
  const MessageHeader& advertisement() const { return advertisements_.front().header; }
  // Tells the peer that this rank waits for an advertisement. The message is sent before a thread
  // sleeps, unless the advertisement has arrived by then.
  void report_waiting(const progress::Call& call);
  // The number of sends from a caller's memory, and of those whose memory the network has released.
  uint64_t zero_copy_sent() const { return zero_copy_sent_; }
  const std::atomic<uint64_t>& zero_copy_done() const { return zero_copy_done_.end(); }

  // To receive pieces: expect() says that `call`, which stays where it is, wants `bytes` more at
  // `to`. Then advertise(), await pieces_received() >= pieces_consumed() + 1, and consume_piece().
  // defer_advertisement() advertises later, so that one advertisement covers calls that are made
  // one after the other. It waits while the peer has memory of earlier calls to fill: until at most
  // kPiecesAhead / 2 pieces are outstanding, or a thread waits or sleeps.
  void expect(const progress::Call& call, std::byte* to, int64_t bytes);
  void advertise();
  void defer_advertisement();
  const std::atomic<uint64_t>& pieces_received() const { return pieces_received_.end(); }
  uint64_t pieces_consumed() const { return pieces_consumed_; }
  void consume_piece() { ++pieces_consumed_; }
  // The call in which the peer has reported a wait; number 0: none.
  const MessageHeader& waiting() const { return waiting_; }

  // True once the peer has closed the channel and all its messages have arrived.
  bool closed_by_peer() const {
    return closed_ && came_ >= closed_at_ && pieces_received_.end().load() >= closed_at_piece_;
  }
  // The peer must not take the end of this channel for a rank that has left.
  void close_silently() { is_silent_ = true; }

 private:
  friend class NetworkEndpoint;
  static const MessageHeader& message_at(const WireMessage& whole, size_t at);
  static size_t behind(const WireMessage& whole, size_t at);
  void arrive(WireMessage* message);
  void arrive_piece(WireMessage& message);
  void on_control(const ControlMessage& control);
  void on_advertisement(const ControlMessage& control);
  FabricTransport::RemoteBuffer take_remote_buffer();
  bool advertise_first(ControlMessage& control, size_t& buffers);
  bool is_followed_by_alike(const MessageHeader& calls, size_t pieces_of_each) const;
  void hold_back();
  void send_held();
  void send_coalesced();
  void send_waiting();
  void on_stopped(uint64_t pieces);
  bool owes_credits() const;
  void grant();
  void on_credits(uint64_t granted);
  // Whether all pieces that the peer has written have arrived.
  bool has_all_written() const { return stopped_at_ && written_here_ >= *stopped_at_; }
  bool has_sent() const { return zero_copy_done_.end().load() == zero_copy_sent_; }
  bool is_idle() const { return posted_.empty() && has_sent(); }

  NetworkEndpoint& endpoint_;
  const uint64_t id_;
  const int peer_;
  MessageListener* const listener_;
  std::atomic<uint64_t> credits_{0}, submitted_{0};
  std::atomic<uint64_t> arrived_{0};
  uint64_t sent_ = 0, taken_ = 0, granted_ = 0;
  WireMessage* coalesced_ = nullptr;  // coalesced messages, the last that counts as sent
  // Received messages, by index modulo kCredits. came_: the first index that is missing. emptied_:
  // the first that is not taken. front_at_: where the next one begins in a coalesced message.
  WireMessage* slots_[mesh::kCredits] = {};
  uint64_t came_ = 0, emptied_ = 0;
  size_t front_at_ = 0;
  bool closed_ = false, is_silent_ = false;
  uint64_t closed_at_ = 0, closed_at_piece_ = 0;  // sent by the peer before it closed

  std::atomic<uint64_t> advertised_{0};
  std::deque<ControlMessage> advertisements_;  // in their order, the first with pieces not sent yet
  uint64_t pieces_sent_ = 0;
  uint64_t written_ = 0;             // pieces handed to the network
  bool is_revoked_ = false;          // the peer wants no more pieces
  MessageHeader pending_waiting_{};  // the call that this rank waits in, to be sent
  uint64_t zero_copy_sent_ = 0;
  int64_t zero_copy_bytes_in_flight_ = 0;  // not released by the network yet
  ContiguousPrefix zero_copy_done_;

  struct Expected {
    const progress::Call* call;
    std::byte* to;
    int64_t bytes, most;  // of a piece
  };
  std::deque<Expected> expected_;  // not advertised yet
  std::vector<WireMessage*> posted_;
  uint64_t pieces_posted_ = 0, pieces_consumed_ = 0;
  bool is_released_ = false;
  ContiguousPrefix pieces_received_;
  uint64_t written_here_ = 0;           // pieces that have arrived
  std::optional<uint64_t> stopped_at_;  // the final number of pieces
  MessageHeader waiting_{};
};

}  // namespace smp::net
