#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "net/parcel.h"
#include "progress/call.h"

namespace smp::net {

class Port;

// Whoever is told of messages of a call as they come, under the engine's lock.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual void came(const MessageHeader& header) = 0;
  // Whom this rank waits for in its group's call of that number, or in an earlier one: a rank of
  // the job, -1 for none. Nothing if it has not made the call.
  virtual std::optional<int> awaited_in(uint64_t) const { return std::nullopt; }
};

// Numbers that come in any order; up to which all have.
class Prefix {
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

// Messages in both directions between this rank and one of another host, for one purpose of one
// group. Each direction keeps its order and has credits of its own: a message is sent only when its
// receiver has a buffer ready, so no channel ever waits for another. Counters are awaited by
// programs; everything else happens under the engine's lock.
//
// Beside these messages there are the pieces of what is too long for one: their receiver exposes
// the memory of its caller, in the order in which its calls expect them, and they go there
// straight.
class Channel {
 public:
  Channel(Port& port, uint64_t id, int peer, Reader* reader = nullptr);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int peer() const { return peer_; }

  // Sending: await credits() >= sent() + 1, then room in the port, then send. Or, if it joins(),
  // let it go with others: what has joined is on its way when submitted() has reached sent().
  const std::atomic<uint64_t>& credits() const { return credits_; }
  uint64_t sent() const { return sent_; }
  const std::atomic<uint64_t>& submitted() const { return submitted_; }
  // Its peer is behind by half of what it has given credits for.
  bool joins() const {
    return joined_ != nullptr || sent_ + uint64_t(mesh::kCredits) / 2 >= credits_.load();
  }

  // Receiving: await arrived() >= taken() + 1, look at front(), then take it.
  const std::atomic<uint64_t>& arrived() const { return arrived_; }
  uint64_t taken() const { return taken_; }
  const MessageHeader& front() const;
  const std::byte* front_bytes() const;
  void take();

  // Sending pieces: await exposed() >= pieces_sent() + 1, look at whose call the invitation is.
  const std::atomic<uint64_t>& exposed() const { return exposed_; }
  uint64_t pieces_sent() const { return pieces_sent_; }
  const MessageHeader& invitation() const { return invitations_.front().header; }
  // Before somebody sleeps its peer is told, unless the memory is there by then.
  void tell_waiting(const progress::Call& call);
  // Sends from a caller's memory so far, and those of them whose memory is its caller's again.
  uint64_t lent() const { return lent_; }
  const std::atomic<uint64_t>& left() const { return left_.end(); }

  // Receiving pieces: `call`, which stays where it is, expects so many bytes more; expose them,
  // await placed() >= pieces_seen() + 1, then see it. While its peer has memory of earlier calls to
  // fill one may be held back, so that calls that are made one after the other are told as one: it
  // is exposed when at most kPiecesAhead / 2 are still to come, or somebody waits or sleeps.
  void expect(const progress::Call& call, std::byte* to, int64_t bytes);
  void expose();
  void hold();
  const std::atomic<uint64_t>& placed() const { return placed_.end(); }
  uint64_t pieces_seen() const { return pieces_seen_; }
  void see() { ++pieces_seen_; }
  // What its peer waits for, if it has said so; number 0 if not.
  const MessageHeader& waiting() const { return waiting_; }

  // Whether its peer has closed it and nothing more will come.
  bool closed_by_peer() const {
    return closed_ && came_ >= closed_at_ && placed_.end().load() >= closed_at_piece_;
  }
  // Its peer shall not take the end of this one for a rank that has left.
  void keep_quiet() { quiet_ = true; }

 private:
  friend class Port;
  static const MessageHeader& message_at(const Parcel& whole, size_t at);
  static size_t behind(const Parcel& whole, size_t at);
  void arrive(Parcel* parcel);
  void arrive_piece(Parcel& parcel);
  void heard(const Note& note);
  void invited(const Note& note);
  Transport::Place take_place();
  bool expose_first(Note& note, size_t& places);
  bool is_followed_by_alike(const MessageHeader& calls, size_t pieces_of_each) const;
  void hold_back();
  void send_held();
  void send_joined();
  void say_waiting();
  void stops_at(uint64_t pieces);
  bool owes_credits() const;
  void grant();
  void hear_credits(uint64_t granted);
  // Whether all has come that its peer has written.
  bool has_all_written() const { return stopped_at_ && written_here_ >= *stopped_at_; }
  bool has_sent() const { return left_.end().load() == lent_; }
  bool is_idle() const { return posted_.empty() && has_sent(); }

  Port& port_;
  const uint64_t id_;
  const int peer_;
  Reader* const reader_;
  std::atomic<uint64_t> credits_{0}, submitted_{0};
  std::atomic<uint64_t> arrived_{0};
  uint64_t sent_ = 0, taken_ = 0, granted_ = 0;
  Parcel* joined_ = nullptr;  // messages that will go as one, the last that counts as sent
  // What has come, by its index modulo kCredits: up to which there is no gap, up to which all has
  // been taken, and where the next to be taken begins in that.
  Parcel* slots_[mesh::kCredits] = {};
  uint64_t came_ = 0, emptied_ = 0;
  size_t front_at_ = 0;
  bool closed_ = false, quiet_ = false;
  uint64_t closed_at_ = 0, closed_at_piece_ = 0;  // what its peer has sent, once it is closed

  std::atomic<uint64_t> exposed_{0};
  std::deque<Note> invitations_;  // in their order, the first with pieces not sent yet
  uint64_t pieces_sent_ = 0;
  uint64_t written_ = 0;     // pieces that the network has or will have
  bool is_revoked_ = false;  // its peer wants none any more
  MessageHeader untold_{};   // what it waits for, to be told
  uint64_t lent_ = 0;
  int64_t lent_bytes_ = 0;  // that have not left
  Prefix left_;

  struct Expected {
    const progress::Call* call;
    std::byte* to;
    int64_t bytes, most;  // of a piece
  };
  std::deque<Expected> expected_;  // what is not exposed yet
  std::vector<Parcel*> posted_;
  uint64_t pieces_posted_ = 0, pieces_seen_ = 0;
  bool is_let_go_ = false;
  Prefix placed_;
  uint64_t written_here_ = 0;           // pieces that have come
  std::optional<uint64_t> stopped_at_;  // how many will
  MessageHeader waiting_{};
};

}  // namespace smp::net
