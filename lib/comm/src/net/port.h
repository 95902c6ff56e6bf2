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

#include "net/channel.h"
#include "net/closed_channels.h"
#include "net/parcel.h"
#include "net/transport.h"
#include "progress/call.h"
#include "progress/mover.h"
#include "smp/comm/net/exchange.h"
#include "smp/plan/mesh/collective.h"

namespace smp::net {

// One rank's end of the network: the pool of buffers that it sends from, the bytes in flight, which
// it bounds, the receives of all its channels, and what goes on when somebody polls.
class Port final : public progress::Mover {
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
  void send_held() override;
  void say_waiting() override;
  int where_to_sleep() override {
    if (has_ended_) return waiting::kNoDescriptor;
    return is_impatient() ? waiting::kPollAgain : transport_->where_to_sleep();
  }
  bool is_impatient() const override { return !again_.empty() || !questions_.empty(); }
  bool is_elsewhere(int rank) const override {
    return host_of_[size_t(rank)] != host_of_[size_t(rank_)];
  }
  std::optional<progress::Standing> ask(int rank, uint64_t key, uint64_t number,
                                        std::chrono::steady_clock::time_point since) override;
  std::chrono::milliseconds mute_after() const override { return silence_ / kMute; }

  // What this rank does; in a call that it is asked about and has made it waits for `awaited`.
  // Nothing: it is there, but does not say.
  using Witness = std::function<std::optional<progress::Standing>(std::optional<int> awaited)>;
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
  // Of what goes straight, so many bytes in all.
  int64_t piece_bytes(int64_t all) const { return message_bytes(all, takes_any_memory()); }

  // For programs: while there is no room for so many bytes, await freed() to move.
  const std::atomic<uint64_t>& freed() const { return freed_; }
  bool has_room(const Channel& channel, int64_t bytes) const;
  // Of the next message to be sent, if it is not from a caller's memory.
  std::byte* payload() const;
  void send(Channel& channel, const progress::Call& call, int64_t bytes);
  // With others of a channel that joins(). False if it has to go by itself.
  bool join(Channel& channel, const progress::Call& call, const std::byte* from, int64_t bytes);
  // From a caller's memory, which stays as it is until channel.left() has reached channel.lent().
  // Before it go the `head` bytes that are in a payload.
  void send_from(Channel& channel, const progress::Call& call, const std::byte* from, int64_t bytes,
                 int64_t head = 0);
  void send_piece(Channel& channel, const progress::Call& call, const std::byte* from,
                  int64_t bytes);

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
  MessageHeader header_of(const Channel& channel, const progress::Call& call) const;
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
  std::vector<Channel*> held_, waiting_;  // that have something to say or send later
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
    std::optional<progress::Standing> standing;
  };
  std::map<std::tuple<int, uint64_t, uint64_t>, Inquiry> inquiries_;  // by rank, group and call
  uint64_t inquired_ = 0;
  Counts counts_;
};

}  // namespace smp::net
