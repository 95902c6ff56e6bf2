#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "groups/group_side.h"
#include "groups/scratch.h"
#include "groups/shm/group.h"
#include "net/network_endpoint.h"
#include "smp/plan/mesh/collective.h"

namespace smp::groups {

// The path of a call's bytes to or from one other rank: in messages, or zero-copy. The receiver
// must expect and advertise zero-copy pieces.
struct MessagePath {
  bool is_zero_copy = false;
  int64_t most = mesh::kMessageBytes;  // bytes of a piece
};

// One rank's side of a group whose ranks are on several hosts. Its collectives consist of steps
// inside the host, which are calls of an ordinary group of the ranks here, and of messages on the
// rails. A rail joins member i of a host to member i of another host. The programs:
// interhost_collectives.cpp.
class InterhostGroup final : public GroupSide, public net::MessageListener {
 public:
  InterhostGroup(std::shared_ptr<RankContext> context, std::vector<int> globals, int rank,
                 uint64_t key, std::vector<RecordPtr> parents);
  ~InterhostGroup() override;

  comm::WorkPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, comm::ReduceOp op,
                           std::string_view label) override;
  comm::WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                           std::string_view label) override;
  comm::WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                               comm::ReduceOp op, std::string_view label) override;
  comm::WorkPtr broadcast(void* buffer, int64_t count, DType dtype, int root,
                          std::string_view label) override;
  comm::WorkPtr send(const void* in, int64_t count, DType dtype, int peer,
                     std::string_view label) override;
  comm::WorkPtr recv(void* out, int64_t count, DType dtype, int peer,
                     std::string_view label) override;
  comm::WorkPtr barrier(std::string_view label) override;

  void set_timeout(std::chrono::milliseconds timeout) override;
  std::vector<comm::TrafficCount> traffic() const override;
  int64_t segment_bytes() const override;

 private:
  // Messages of send and recv with one member of another host.
  struct Pair final : net::MessageListener {
    explicit Pair(InterhostGroup& its_group) : group(its_group) {}
    void on_message(const net::MessageHeader& header) override { group.sent_by(*this, header); }

    InterhostGroup& group;
    progress::Lane sends, recvs;
    uint64_t sent = 0, received = 0;
    std::unique_ptr<net::Channel> channel;
  };

  bool has_left(int rank) const override;
  bool has_abandoned(int) const override { return false; }  // unknown between hosts
  bool has_called(int rank, const progress::Call& call) const override;
  void check_calls(const progress::Operation&) const override {}  // each message has the call
  std::optional<std::string> unreachable(int rank) const override;
  void on_message(const net::MessageHeader& header) override;
  void sent_by(const Pair& pair, const net::MessageHeader& header);
  void release_buffers() override;
  int awaited(progress::Operation& op) const override;
  uint64_t key_of(const progress::Operation& op) const override {
    return &op.lane == &collectives_ ? key_ : 0;
  }
  std::optional<int> awaited_in(uint64_t number) const override;

  comm::WorkPtr begin(std::shared_ptr<progress::Operation>&& op, progress::Program program);
  progress::Program program_of(progress::Operation& op, ConstBytes in, Bytes out) override;

  Pair& pair(int peer);
  bool is_here(int rank) const { return local_ && rank / per_host_ == host_; }

  // The parts of a buffer that every host gets from all hosts: the part of host h is at h * stride.
  struct Parts {
    Bytes first = nullptr;
    int64_t stride = 0, bytes = 0;
    ConstBytes own = nullptr;
    // Each member of a host has a part of its own, one after the other, and gets all.
    bool are_for_members = false;
  };

  // Programs. Sizes are in bytes unless they say elements.
  progress::Program run_greeting(progress::Operation& op);
  progress::Program run_exchange(progress::Operation& op, Parts parts, progress::Program then);
  progress::Program run_one_shot(progress::Operation& op, ConstBytes in, Bytes out, int64_t count);
  progress::Program run_sum_of_all(progress::Operation& op, ConstBytes all, Bytes out,
                                   int64_t count);
  // A long all_reduce, in rounds; each of its programs continues with the next round.
  struct AllReduce;
  progress::Program run_all_reduce(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_partials(progress::Operation& op, AllReduce& all, int64_t round);
  progress::Program run_own_sum(progress::Operation& op, AllReduce& all, int64_t round);
  progress::Program run_others_sums(progress::Operation& op, AllReduce& all, int64_t round);
  progress::Program turn(progress::Operation& op, AllReduce& all, int64_t k);
  ConstBytes partial(const AllReduce& all, int64_t round, int host) const;
  void start_partials(progress::Operation& op, AllReduce& all, int64_t round);
  progress::Program run_reduce_scatter(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_all_gather(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_broadcast(progress::Operation& op, Bytes buffer);
  progress::Program run_reduce(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_gather(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_scatter(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_all_to_all(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_barrier(progress::Operation& op);
  progress::Program run_send(progress::Operation& op, net::Channel& channel, ConstBytes in);
  progress::Program run_recv(progress::Operation& op, net::Channel& channel, Bytes out);

  MessagePath path_of(int64_t bytes) const {
    return {bytes > mesh::kMessageBytes, context_->endpoint->piece_bytes(bytes)};
  }

  // Steps of programs.
  int member(int host, int place) const { return host * per_host_ + place; }
  net::Channel& rail(int host) { return *rails_[size_t(host)]; }
  auto may_send(progress::Operation& op, net::Channel& channel, int peer, MessagePath path = {});
  bool has_room(const net::Channel& channel, int64_t bytes) const {
    return context_->endpoint->has_room(channel, bytes);
  }
  auto room_made(progress::Operation& op, int peer);
  // Sends from memory that does not change until the send has completed.
  void send_message(progress::Operation& op, net::Channel& channel, int peer, ConstBytes from,
                    int64_t bytes, MessagePath path = {});
  // As above, after a short part that is copied.
  struct Head {
    ConstBytes from;
    int64_t bytes, room;
  };
  void send_behind(progress::Operation& op, net::Channel& channel, Head head, ConstBytes from,
                   int64_t bytes);
  void send_written(progress::Operation& op, net::Channel& channel,
                    int64_t bytes);  // the bytes in the payload
  auto message_of(progress::Operation& op, net::Channel& channel, int peer, MessagePath path = {});
  // Copies a message to its destination; a zero-copy message is there already.
  void take_message(progress::Operation& op, net::Channel& channel, int peer, Bytes to,
                    int64_t bytes, MessagePath path = {});
  auto zero_copies_done(progress::Operation& op, int host);
  void check_message(const progress::Operation& op, const net::Channel& channel, int peer);
  void check(const progress::Operation& op, const net::MessageHeader& header, int peer);
  const progress::Call* contradicted_by(const net::MessageHeader& header) const;
  comm::CommError mismatch_with(const progress::Call& own, const net::MessageHeader& theirs) const;
  std::string step_label(const progress::Operation& op) const;
  // Registers a step inside the host. `is_indirect`: its members may in turn wait for other hosts.
  void started(progress::Operation& op, const comm::WorkPtr& step, bool is_indirect = false);
  auto all_steps_done(progress::Operation& op);
  auto steps_done_but(progress::Operation& op, int later);

  int hosts_ = 1, per_host_ = 1;  // the grid
  int host_ = 0, place_ = 0;      // this rank's

  std::unique_ptr<Group> local_;  // of the members on this host, if there are several
  std::vector<std::unique_ptr<net::Channel>> rails_;  // by host; none to its own
  std::vector<uint64_t> heard_;  // number of the last call heard on each host's rail
  std::map<int, std::unique_ptr<Pair>> pairs_;
  mutable std::map<int, std::chrono::steady_clock::time_point> gone_since_;  // of members

  std::atomic<uint64_t> steps_done_{0};
  uint64_t steps_started_ = 0;
  progress::Call current_, previous_;                                  // the two latest collectives
  Scratch scratch_{*context_, true}, more_scratch_{*context_, false};  // of the running collective
  std::shared_ptr<AllReduce> all_reduce_;  // the running one; defined in its own file
};

}  // namespace smp::groups
