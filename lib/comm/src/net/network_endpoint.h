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
#include "net/fabric_transport.h"
#include "net/wire_message.h"
#include "progress/call.h"
#include "progress/network_progress.h"
#include "smp/comm/net/exchange.h"
#include "smp/plan/mesh/collective.h"

namespace smp::net {

// One rank's end of the network. It owns the pool of send buffers, limits the bytes in flight,
// posts the receives of all its channels, and makes progress when the engine polls it. A zero-copy
// transfer from or to unregistered memory uses a bounce buffer where the network requires
// registered memory.
class NetworkEndpoint final : public progress::NetworkProgress {
 public:
  struct Counts {
    int64_t messages = 0;         // of data, sent
    int64_t bytes_in_flight = 0;  // now
    int64_t most_in_flight = 0;   // ever; at most kWindowBytes
    int64_t unexpected = 0;       // data messages for which no credit had been given
    int64_t unauthenticated = 0;  // messages without the job's secret, dropped
    int64_t early = 0;            // channels that peers have opened, but not this rank yet
  };

  // `silence`: how long a rank may leave a question unanswered before it counts as lost.
  NetworkEndpoint(std::unique_ptr<FabricTransport> transport, int rank, uint64_t secret,
                  std::chrono::milliseconds silence);
  ~NetworkEndpoint() override;

  bool poll() override;
  void send_held() override;
  void send_waiting() override;
  int wait_descriptor() override {
    if (has_ended_) return waiting::kNoDescriptor;
    return needs_poll() ? waiting::kPollAgain : transport_->wait_descriptor();
  }
  bool needs_poll() const override { return !retries_.empty() || !queries_.empty(); }
  bool is_on_other_host(int rank) const override {
    return host_of_[size_t(rank)] != host_of_[size_t(rank_)];
  }
  std::optional<progress::PeerStatus> query_status(
      int rank, uint64_t key, uint64_t number,
      std::chrono::steady_clock::time_point since) override;
  std::chrono::milliseconds unresponsive_after() const override {
    return silence_ / kUnresponsivePart;
  }

  // Returns what this rank does now. `awaited`: the rank that it waits for in the call of the
  // question, if it has made that call. Nothing: this rank is alive but gives no status.
  using StatusProvider =
      std::function<std::optional<progress::PeerStatus>(std::optional<int> awaited)>;
  // To be called before anything else. `host_of`: the host of each rank.
  void set_topology(std::vector<int> host_of, StatusProvider status_provider);
  // Registers the group with this key, which reports on this rank's calls in it.
  void add(uint64_t key, const MessageListener& group) { groups_[key] = &group; }
  void remove(uint64_t key) { groups_.erase(key); }
  // Waits until all sends have completed, or the limit has passed.
  void flush(std::chrono::milliseconds limit);

  // Whether the network sends from and receives into any memory of callers. Otherwise it takes only
  // memory that was registered with register_memory(), under the lock; other zero-copy transfers go
  // through bounce buffers. register_memory() throws as FabricTransport::adopt.
  bool takes_any_memory() const { return transport_->takes_any_memory(); }
  void register_memory(std::byte* begin, int64_t bytes);
  void deregister_memory(const std::byte* begin);
  bool takes(const std::byte* from, int64_t bytes) const {
    return takes_any_memory() || registered_memory(from, bytes) != nullptr;
  }
  // Bytes of a piece of a zero-copy transfer of `all` bytes.
  int64_t piece_bytes(int64_t all) const { return message_bytes(all, takes_any_memory()); }

  // For programs: while there is no room for `bytes`, await a change of freed().
  const std::atomic<uint64_t>& freed() const { return freed_; }
  bool has_room(const Channel& channel, int64_t bytes) const;
  // The buffer of the next message, unless the message is sent from a caller's memory.
  std::byte* payload() const;
  void send(Channel& channel, const progress::Call& call, int64_t bytes);
  // Adds a message to the buffer of a channel that coalesces(). False if it must go by itself.
  bool coalesce(Channel& channel, const progress::Call& call, const std::byte* from, int64_t bytes);
  // Sends from a caller's memory, which must not change until channel.zero_copy_done() has reached
  // channel.zero_copy_sent(). The first `head` bytes of the message come from payload().
  void send_from(Channel& channel, const progress::Call& call, const std::byte* from, int64_t bytes,
                 int64_t head = 0);
  void send_piece(Channel& channel, const progress::Call& call, const std::byte* from,
                  int64_t bytes);

  // Ends the zero-copy transfers of these channels. When it returns, the network touches callers'
  // memory no more, and the channels cannot be used again. Pieces that their peers still send are
  // discarded.
  //
  // False if the whole network had to end instead: a half-sent or half-received message made no
  // progress for `limit`, or a peer that may still write did not confirm for longer that it has
  // stopped. The confirmation is not awaited for long if the job `is_over`, and not at all if the
  // peer `has_gone` without having opened the channel.
  bool release_buffers(const std::vector<Channel*>& channels, std::chrono::milliseconds limit,
                       const std::function<bool()>& is_over,
                       const std::function<bool(int rank)>& has_gone);

  // The reason why no message reaches a rank, if so. It is held back for a moment after an error,
  // since a better reason may come. A waiting rank calls this often. The awaited rank itself is
  // asked twice a second: its engine answers, whatever the rank does.
  std::optional<std::string> unreachable(int rank);

  const Counts& counts() const { return counts_; }

 private:
  friend class Channel;
  // A rank that does not answer for this part of the silence is unresponsive.
  static constexpr int kUnresponsivePart = 4;
  using Clock = std::chrono::steady_clock;

  void open(Channel& channel);
  void close(Channel& channel);
  void add_receives(int64_t channels);
  void recycle(WireMessage& receive);
  // Throws if the network has no memory for more messages.
  WireMessage* spare_control();
  // Null if there is no memory; ranks that wait for `peer` are told, since no caller would catch an
  // exception here.
  WireMessage* spare_control_for(int peer);
  MessageHeader header_of(const Channel& channel, const progress::Call& call) const;
  void send_control(const Channel& channel, MessageHeader::Kind kind);
  void send_control(const MessageHeader& header, int to);
  void send_control(const ControlMessage& control, size_t buffers, int to);
  void begin(WireMessage& message, Channel& channel, const MessageHeader& header, int64_t bytes);
  void count_in_flight(int64_t bytes);
  void submit_data(WireMessage& message, Channel& channel);
  void send_coalesced(Channel& channel);
  void drop_coalesced(Channel& channel);
  void send_zero_copy(Channel& channel, const MessageHeader& header, const std::byte* from,
                      int64_t bytes, const FabricTransport::RemoteBuffer* buffer, int64_t head = 0);
  std::optional<FabricTransport::RemoteBuffer> receive_piece(Channel& channel, uint64_t number,
                                                             std::byte* to, int64_t bytes);
  uint64_t secret_of(const Channel& channel, uint64_t number) const;
  FabricTransport::Memory* registered_memory(const std::byte* begin, int64_t bytes) const;
  void submit(WireMessage& message);
  bool retry();
  void completed(WireMessage& message);
  void send_completed(WireMessage& message);
  void received(WireMessage& message);
  void received_piece(WireMessage& message);
  WireMessage* spare_bounce_buffer();
  void recycle_receive(WireMessage& piece);
  void revoke(Channel& channel);
  void receive_and_discard(const WireMessage& piece);
  void withdraw(Channel& channel, bool only_pieces);
  void stop_writing(uint64_t channel, int to, uint64_t written);
  void cancel_receives(Channel& channel);
  void cancel_unopened(const std::vector<Channel*>& channels,
                       const std::function<bool(int rank)>& has_gone);
  void end_network();
  void reply_status(const MessageHeader& query);
  void on_status_reply(const MessageHeader& header);

  std::unique_ptr<FabricTransport> transport_;
  const int rank_;
  const uint64_t secret_;
  const std::chrono::milliseconds silence_;

  struct Block {
    std::unique_ptr<FabricTransport::Memory> memory;
    std::vector<std::unique_ptr<WireMessage>> messages;
  };
  Block make_block(int64_t messages, size_t bytes, FabricTransport::MessageClass message_class);
  std::vector<Block> blocks_;
  std::vector<WireMessage*> free_buffers_, free_controls_;
  std::atomic<uint64_t> freed_{0};

  std::deque<WireMessage*> retries_;  // messages that the network had no room for
  std::vector<FabricTransport::Transfer*> complete_;
  bool has_ended_ = false;
  std::unique_ptr<FabricTransport::Memory> discard_buffer_;  // for pieces that were revoked
  // For pieces, if callers' memory cannot be exposed.
  std::vector<WireMessage*> free_bounce_buffers_;
  struct RegisteredRange {
    int64_t bytes;
    std::unique_ptr<FabricTransport::Memory> memory;
  };
  std::map<const std::byte*, RegisteredRange> registered_;  // by its begin
  ClosedChannels closed_;
  std::map<uint64_t, Channel*> channels_;
  std::vector<Channel*> held_, waiting_;  // channels with something to send later
  struct EarlyControl {
    uint64_t granted = 0;
    std::vector<ControlMessage> controls;
  };
  std::map<uint64_t, EarlyControl> early_;  // messages about channels that are not open here yet
  int64_t spare_receives_ = 0;              // of closed channels
  int64_t in_flight_ = 0;                   // sends of any kind
  int coalescing_ = 0;                      // buffers with messages that wait for a credit
  struct SendError {
    std::string text;
    Clock::time_point since;
  };
  std::map<int, SendError> send_errors_;
  struct OpenQuery {
    Clock::time_point since, last;  // the first and the last question since its last message
    bool is_open = false;
  };
  std::map<int, OpenQuery> liveness_;
  std::vector<MessageHeader> queries_;  // to be answered
  std::vector<int> host_of_;
  StatusProvider status_provider_;
  std::map<uint64_t, const MessageListener*> groups_;
  struct StatusQuery {
    uint64_t number = 0;  // of the query, from 1
    Clock::time_point asked;
    Clock::time_point open_since;  // the first of those asked without an answer
    std::optional<progress::PeerStatus> status;
  };
  // By rank, group and call.
  std::map<std::tuple<int, uint64_t, uint64_t>, StatusQuery> status_queries_;
  uint64_t status_queries_sent_ = 0;
  Counts counts_;
};

}  // namespace smp::net
