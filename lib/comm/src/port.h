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
#include "engine.h"
#include "smp/plan/collective.h"
#include "transport.h"

namespace smp::shm {

// What every message between hosts begins with.
struct alignas(kLineBytes) MessageHeader {
  enum Kind : uint32_t { kData, kGrant, kClosed, kAsk, kHere };
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
};
static_assert(sizeof(MessageHeader) == kMessageHeaderBytes);

class Port;

// Whoever is told of data messages as they come, under the engine's lock.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual void came(const MessageHeader& header) = 0;
  // Whom this rank waits for in its group's call of that number, or in an earlier one: a rank of
  // the job, -1 for none. Nothing if it has not made the call.
  virtual std::optional<int> awaited_in(uint64_t number) const = 0;
};

// Messages in both directions between this rank and one of another host, for one purpose of one
// group. Each direction keeps its order and has credits of its own: a message is sent only when its
// receiver has a buffer ready, so no channel ever waits for another. Counters are awaited by
// programs; everything else happens under the engine's lock.
class Channel {
 public:
  Channel(Port& port, uint64_t id, int peer, Reader* reader = nullptr);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int peer() const { return peer_; }

  // Sending: await credits() >= sent() + 1, then the port's buffers, then send.
  const std::atomic<uint64_t>& credits() const { return credits_; }
  uint64_t sent() const { return sent_; }

  // Receiving: await arrived() >= taken() + 1, look at front(), then take it.
  const std::atomic<uint64_t>& arrived() const { return arrived_; }
  uint64_t taken() const { return taken_; }
  const MessageHeader& front() const;
  const std::byte* front_bytes() const;
  void take();

  // Whether its peer has closed it and nothing more will come.
  bool closed_by_peer() const { return closed_ && arrived_.load() >= closed_at_; }
  // Its peer shall not take the end of this one for a rank that has left.
  void keep_quiet() { quiet_ = true; }

 private:
  friend class Port;
  void arrive(Transport::Transfer* transfer);
  void grant();

  Port& port_;
  const uint64_t id_;
  const int peer_;
  Reader* const reader_;
  std::atomic<uint64_t> credits_{0};
  std::atomic<uint64_t> arrived_{0};
  uint64_t sent_ = 0, taken_ = 0, granted_ = 0;
  Transport::Transfer* slots_[kCredits] = {};  // what has come, by its index modulo kCredits
  bool closed_ = false, quiet_ = false;
  uint64_t closed_at_ = 0;  // messages that its peer has sent, once it is closed
};

// One rank's end of the network: the pool of buffers that it sends from, which bounds the bytes in
// flight, the receives of all its channels, and what goes on when somebody polls.
class Port final : public Mover {
 public:
  struct Counts {
    int64_t messages = 0;         // of data, sent
    int64_t bytes_in_flight = 0;  // now
    int64_t most_in_flight = 0;   // ever; at most kWindowBytes
    int64_t unexpected = 0;       // data messages for which no credit had been given
    int64_t strangers = 0;        // messages without the job's secret, dropped
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

  // For programs: while there is no buffer, await freed() >= buffers_needed().
  const std::atomic<uint64_t>& freed() const { return freed_; }
  uint64_t buffers_needed() const { return used_ + 1; }
  bool has_buffer() const { return !free_buffers_.empty(); }
  std::byte* payload() const;  // of the next message to be sent
  void send(Channel& channel, const Call& call, int64_t bytes);

  // Why nothing reaches a rank, if so; for a moment after an error nothing is said, for there may
  // be a better reason soon.
  // Whoever waits for a rank asks here often, and the rank itself twice a second: its engine
  // answers, whatever it does.
  std::optional<std::string> unreachable(int rank);

  const Counts& counts() const { return counts_; }

 private:
  friend class Channel;
  static constexpr int kMute = 4;  // who says nothing for this part of the silence tells no more
  using Transfer = Transport::Transfer;
  using Clock = std::chrono::steady_clock;

  void open(Channel& channel);
  void close(Channel& channel);
  void add_receives(int64_t channels);
  void recycle(Transfer& receive);
  void note(const Channel& channel, MessageHeader::Kind kind);
  void note(MessageHeader header, int to);
  void submit(Transfer& transfer);
  bool try_again();
  void completed(Transfer& transfer);
  void received(Transfer& transfer);
  void answer(const MessageHeader& question);
  void answered(const MessageHeader& header);

  std::unique_ptr<Transport> transport_;
  const int rank_;
  const uint64_t secret_;
  const std::chrono::milliseconds silence_;

  struct Block {
    std::unique_ptr<Transport::Memory> memory;
    std::vector<std::unique_ptr<Transfer>> transfers;
  };
  Block make_block(int64_t transfers, size_t bytes, Transport::Box box);
  std::vector<Block> blocks_;
  std::vector<Transfer*> free_buffers_, free_notes_;
  std::atomic<uint64_t> freed_{0};
  uint64_t used_ = 0;

  std::deque<Transfer*> again_;  // the network had no room for them
  std::vector<Transfer*> complete_;
  std::map<uint64_t, Channel*> channels_;
  struct Early {
    uint64_t granted = 0, closed_at = 0;
    bool closed = false;
  };
  std::map<uint64_t, Early> early_;  // said of channels that are not open here yet
  int64_t spare_receives_ = 0;       // of closed channels
  int64_t in_flight_ = 0;            // sends of any kind
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
