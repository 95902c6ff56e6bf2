#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "call.h"
#include "closed_channels.h"
#include "engine.h"
#include "smp/plan/collective.h"
#include "transport.h"

namespace smp::shm {

// What is longer than a message goes in pieces of this many bytes from its sender's memory to its
// receiver's, which has so many ready. Those of one channel that have not left are at most so much.
inline constexpr int64_t kPieceBytes = 512 << 10;
inline constexpr size_t kPiecesAhead = 8;
inline constexpr int64_t kChannelWindow = 1 << 20;

// What every message between hosts begins with.
struct alignas(kLineBytes) MessageHeader {
  // kExposed: its sender has memory ready for pieces [index, exposed) of its call, whose places
  // follow; kWaiting: it waits for such; kRevoked: it wants its memory back; kStopped: nothing more
  // will be written to that, and `exposed` pieces have been.
  enum Kind : uint32_t {
    kData,
    kGrant,
    kClosed,
    kAsk,
    kHere,
    kExposed,
    kWaiting,
    kRevoked,
    kStopped
  };
  uint64_t secret;   // of the job: what comes without it is no message of ours
  uint64_t channel;  // which of the channels between these two ranks; of kAsk the group's key
  uint64_t index;    // among the data messages of the channel in this direction, from 0; of kAsk
                     // and kHere which question it is, 0 if all that it asks for is an answer
  uint64_t granted;  // how many its sender is ready to take in the other direction, all in all
  uint64_t fingerprint, number;  // of the call
  int64_t count;
  uint32_t kind;
  int32_t from;    // global rank
  int32_t root;    // of kHere the rank that is waited for
  uint32_t bytes;  // that follow
  uint8_t op, dtype, reduce_op;
  char label[kLabelBytes];
  uint64_t exposed;       // of kClosed the pieces that its sender has written
  uint32_t joined_bytes;  // of kData: of the messages that came with it, behind it
};
static_assert(sizeof(MessageHeader) == kMessageHeaderBytes);

// Where a message that is joined to so many bytes begins.
inline constexpr size_t end_of_line(size_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

// What is no data.
struct Note {
  MessageHeader header{};
  Transport::Place places[kPiecesAhead] = {};
};

class Channel;
class Port;

// A message, its header in memory of the port. It may go on in a caller's, which belongs to a
// channel.
struct Parcel final : Transport::Transfer {
  bool has_payload = false;  // room behind the header
  Channel* channel = nullptr;
  uint64_t number = 0;  // of a send among those from callers' memory, of a receive among the pieces
  std::byte* home = nullptr;  // of a piece that comes to memory of the port: where it shall be

  // Of kData: what is behind the header.
  int64_t content() const { return int64_t{header().bytes} + header().joined_bytes; }
  MessageHeader& header() const { return *reinterpret_cast<MessageHeader*>(data()); }
  Note& note() const { return *reinterpret_cast<Note*>(data()); }
};

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

  // Sending: await credits() >= sent() + 1, then room in the port, then send. Or join those that
  // wait for a credit: what has joined is on its way when credits() has reached sent().
  const std::atomic<uint64_t>& credits() const { return credits_; }
  uint64_t sent() const { return sent_; }

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
  void tell_waiting(const Call& call);
  // Sends from a caller's memory so far, and those of them whose memory is its caller's again.
  uint64_t lent() const { return lent_; }
  const std::atomic<uint64_t>& left() const { return left_.end(); }

  // Receiving pieces: `call`, which stays where it is, expects so many bytes more; expose them,
  // await placed() >= pieces_seen() + 1, then see it.
  void expect(const Call& call, std::byte* to, int64_t bytes) {
    expected_.push_back({&call, to, bytes});
  }
  void expose();
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
  void stops_at(uint64_t pieces);
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
  std::atomic<uint64_t> credits_{0};
  std::atomic<uint64_t> arrived_{0};
  uint64_t sent_ = 0, taken_ = 0, granted_ = 0;
  Parcel* joined_ = nullptr;  // messages that will go as one, the last that counts as sent
  // What has come, by its index modulo kCredits: up to which there is no gap, up to which all has
  // been taken, and where the next to be taken begins in that.
  Parcel* slots_[kCredits] = {};
  uint64_t came_ = 0, emptied_ = 0;
  size_t front_at_ = 0;
  bool closed_ = false, quiet_ = false;
  uint64_t closed_at_ = 0, closed_at_piece_ = 0;  // what its peer has sent, once it is closed

  std::atomic<uint64_t> exposed_{0};
  std::deque<Note> invitations_;  // in their order, the first with pieces not sent yet
  uint64_t pieces_sent_ = 0;
  uint64_t written_ = 0;     // pieces that the network has or will have
  bool is_revoked_ = false;  // its peer wants none any more
  uint64_t lent_ = 0;
  int64_t lent_bytes_ = 0;  // that have not left
  Prefix left_;

  struct Expected {
    const Call* call;
    std::byte* to;
    int64_t bytes;
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

// One rank's end of the network: the pool of buffers that it sends from, the bytes in flight, which
// it bounds, the receives of all its channels, and what goes on when somebody polls.
class Port final : public Mover {
 public:
  struct Counts {
    int64_t messages = 0;         // of data, sent
    int64_t bytes_in_flight = 0;  // now
    int64_t most_in_flight = 0;   // ever; at most kWindowBytes
    int64_t unexpected = 0;       // data messages for which no credit had been given
    int64_t strangers = 0;        // messages without the job's secret, dropped
    int64_t early = 0;            // channels of which it has heard that are not open here yet, now
  };

  // `silence`: how long a rank that is asked may say nothing.
  Port(std::unique_ptr<Transport> transport, int rank, uint64_t secret,
       std::chrono::milliseconds silence);
  ~Port() override;

  bool poll() override;
  int where_to_sleep() override {
    return is_impatient() ? kPollAgain : transport_->where_to_sleep();
  }
  bool is_impatient() const override { return !again_.empty() || !questions_.empty(); }
  bool is_elsewhere(int rank) const override {
    return host_of_[size_t(rank)] != host_of_[size_t(rank_)];
  }
  std::optional<Standing> ask(int rank, uint64_t key, uint64_t number,
                              std::chrono::steady_clock::time_point since) override;
  std::chrono::milliseconds mute_after() const override { return silence_ / kMute; }

  // What this rank does; in a call that it is asked about and has made it waits for `awaited`.
  using Witness = std::function<Standing(std::optional<int> awaited)>;
  // Before anything else. `host_of`: of all ranks.
  void introduce(std::vector<int> host_of, Witness witness);
  // The group with this key, which speaks for this rank's calls in it.
  void add(uint64_t key, const Reader& group) { groups_[key] = &group; }
  void remove(uint64_t key) { groups_.erase(key); }
  // Waits until what was sent has left, or the limit has passed.
  void flush(std::chrono::milliseconds limit);

  // Whether any memory of callers may be sent from and received into. Otherwise it is what has been
  // adopted alone, under the lock; what else goes straight passes through memory of the ports.
  // adopt() throws as Transport's.
  bool takes_any_memory() const { return transport_->takes_any_memory(); }
  void adopt(std::byte* begin, int64_t bytes);
  void forget(const std::byte* begin);
  bool takes(const std::byte* from, int64_t bytes) const {
    return takes_any_memory() || adopted(from, bytes) != nullptr;
  }
  // Of what goes straight.
  int64_t piece_bytes() const { return takes_any_memory() ? kPieceBytes : kMessageBytes; }

  // For programs: while there is no room for so many bytes, await freed() to move.
  const std::atomic<uint64_t>& freed() const { return freed_; }
  bool has_room(const Channel& channel, int64_t bytes) const;
  // Of the next message to be sent, if it is not from a caller's memory.
  std::byte* payload() const;
  void send(Channel& channel, const Call& call, int64_t bytes);
  // What has no credit: with others that wait for one. False if it has to wait by itself.
  bool join(Channel& channel, const Call& call, const std::byte* from, int64_t bytes);
  // From a caller's memory, which stays as it is until channel.left() has reached channel.lent().
  // Before it go the `head` bytes that are in a payload.
  void send_from(Channel& channel, const Call& call, const std::byte* from, int64_t bytes,
                 int64_t head = 0);
  void send_piece(Channel& channel, const Call& call, const std::byte* from, int64_t bytes);

  // Callers' memory is touched by these channels no more when this returns; they are of no use
  // afterwards. What their peers still send goes nowhere. Of one that has a message half sent or
  // received and does not get on with it for `limit`, or whose peer may still write and does not
  // say for longer that it has stopped, the whole network has to end: then false. It need not say
  // so for long if the job `is_over`, and not at all if it `has_gone` without having opened it.
  bool let_go(const std::vector<Channel*>& channels, std::chrono::milliseconds limit,
              const std::function<bool()>& is_over, const std::function<bool(int rank)>& has_gone);

  // Why nothing reaches a rank, if so; for a moment after an error nothing is said, for there may
  // be a better reason soon.
  // Whoever waits for a rank asks here often, and the rank itself twice a second: its engine
  // answers, whatever it does.
  std::optional<std::string> unreachable(int rank);

  const Counts& counts() const { return counts_; }

 private:
  friend class Channel;
  static constexpr int kMute = 4;  // who says nothing for this part of the silence tells no more
  using Clock = std::chrono::steady_clock;

  void open(Channel& channel);
  void close(Channel& channel);
  void add_receives(int64_t channels);
  void recycle(Parcel& receive);
  // Throws where the network has no memory for more.
  Parcel* spare_note();
  // Nothing then, and whoever waits for that rank is told: nobody there would catch it.
  Parcel* spare_note_for(int peer);
  MessageHeader header_of(const Channel& channel, const Call& call) const;
  void note(const Channel& channel, MessageHeader::Kind kind);
  void note(const MessageHeader& header, int to);
  void note(const Note& note, size_t places, int to);
  void begin(Parcel& parcel, Channel& channel, const MessageHeader& header, int64_t bytes);
  void count_in_flight(int64_t bytes);
  void submit_data(Parcel& parcel, Channel& channel);
  void send_joined(Channel& channel);
  void drop_joined(Channel& channel);
  void lend(Channel& channel, const MessageHeader& header, const std::byte* from, int64_t bytes,
            const Transport::Place* place, int64_t head = 0);
  std::optional<Transport::Place> receive_piece(Channel& channel, uint64_t number, std::byte* to,
                                                int64_t bytes);
  uint64_t secret_of(const Channel& channel, uint64_t number) const;
  Transport::Memory* adopted(const std::byte* begin, int64_t bytes) const;
  void submit(Parcel& parcel);
  bool try_again();
  void completed(Parcel& parcel);
  void has_left(Parcel& parcel);
  void received(Parcel& parcel);
  void received_piece(Parcel& parcel);
  Parcel* spare_landing();
  void has_ended(Parcel& piece);
  void call_back(Channel& channel);
  void receive_nowhere(const Parcel& piece);
  void withdraw(Channel& channel, bool only_pieces);
  void stop_writing(uint64_t channel, int to, uint64_t written);
  void take_back(Channel& channel);
  void take_back_unopened(const std::vector<Channel*>& channels,
                          const std::function<bool(int rank)>& has_gone);
  void end_network();
  void answer(const MessageHeader& question);
  void answered(const MessageHeader& header);

  std::unique_ptr<Transport> transport_;
  const int rank_;
  const uint64_t secret_;
  const std::chrono::milliseconds silence_;

  struct Block {
    std::unique_ptr<Transport::Memory> memory;
    std::vector<std::unique_ptr<Parcel>> parcels;
  };
  Block make_block(int64_t parcels, size_t bytes, Transport::Box box);
  std::vector<Block> blocks_;
  std::vector<Parcel*> free_buffers_, free_notes_;
  std::atomic<uint64_t> freed_{0};

  std::deque<Parcel*> again_;  // the network had no room for them
  std::vector<Transport::Transfer*> complete_;
  bool has_ended_ = false;
  std::unique_ptr<Transport::Memory> nowhere_;  // where pieces go that nobody wants any more
  std::vector<Parcel*> free_landings_;  // for pieces, where callers' memory cannot be exposed
  struct Adopted {
    int64_t bytes;
    std::unique_ptr<Transport::Memory> memory;
  };
  std::map<const std::byte*, Adopted> adopted_;  // by its begin
  ClosedChannels closed_;
  std::map<uint64_t, Channel*> channels_;
  struct Early {
    uint64_t granted = 0;
    std::vector<Note> notes;
  };
  std::map<uint64_t, Early> early_;  // said of channels that are not open here yet
  int64_t spare_receives_ = 0;       // of closed channels
  int64_t in_flight_ = 0;            // sends of any kind
  int joining_ = 0;                  // buffers with messages that wait for a credit
  struct Trouble {
    std::string text;
    Clock::time_point since;
  };
  std::map<int, Trouble> troubles_;
  struct Questions {
    Clock::time_point since, last;  // the first and the last since it has said something
    bool are_open = false;
  };
  std::map<int, Questions> asked_;
  std::vector<MessageHeader> questions_;  // to be answered
  std::vector<int> host_of_;
  Witness witness_;
  std::map<uint64_t, const Reader*> groups_;
  struct Inquiry {
    uint64_t question = 0;
    Clock::time_point asked;
    Clock::time_point open_since;  // the first of those asked without an answer
    std::optional<Standing> standing;
  };
  std::map<std::tuple<int, uint64_t, uint64_t>, Inquiry> inquiries_;  // by rank, group and call
  uint64_t inquired_ = 0;
  Counts counts_;
};

}  // namespace smp::shm
