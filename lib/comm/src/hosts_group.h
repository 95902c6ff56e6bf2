#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "group.h"
#include "group_side.h"
#include "port.h"
#include "scratch.h"
#include "smp/plan/collective.h"

namespace smp::shm {

// How the bytes of a call go to one other rank or come from it: in messages, or straight, which its
// receiver has to expect and expose.
struct Way {
  bool is_straight = false;
  int64_t most = kMessageBytes;  // bytes of a piece
};

// One rank's side of a group whose ranks are on several hosts. Its collectives are made of steps
// inside the host, which are calls of an ordinary group of the ranks here, and of messages on the
// rails: member i of a host talks to member i of every other host. The programs: between_hosts.cpp.
class HostsGroup final : public GroupSide, public Reader {
 public:
  HostsGroup(std::shared_ptr<Seat> seat, std::vector<int> globals, int rank, uint64_t key,
             std::vector<RecordPtr> parents);
  ~HostsGroup() override;

  WorkPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                     std::string_view label) override;
  WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                     std::string_view label) override;
  WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         std::string_view label) override;
  WorkPtr broadcast(void* buffer, int64_t count, DType dtype, int root,
                    std::string_view label) override;
  WorkPtr send(const void* in, int64_t count, DType dtype, int peer,
               std::string_view label) override;
  WorkPtr recv(void* out, int64_t count, DType dtype, int peer, std::string_view label) override;
  WorkPtr barrier(std::string_view label) override;

  void set_timeout(std::chrono::milliseconds timeout) override;
  std::vector<TrafficCount> traffic() const override;
  int64_t segment_bytes() const override;

 private:
  // Messages of send and recv with one member of another host.
  struct Pair final : Reader {
    explicit Pair(HostsGroup& its_group) : group(its_group) {}
    void came(const MessageHeader& header) override { group.sent_by(*this, header); }

    HostsGroup& group;
    Lane sends, recvs;
    uint64_t sent = 0, received = 0;
    std::unique_ptr<Channel> channel;
  };

  bool has_left(int rank) const override;
  bool has_abandoned(int) const override { return false; }  // it is not said between hosts
  bool has_called(int rank, const Call& call) const override;
  void check_calls(const Operation&) const override {}  // each message says what was called
  std::optional<std::string> unreachable(int rank) const override;
  void came(const MessageHeader& header) override;
  void sent_by(const Pair& pair, const MessageHeader& header);
  void let_go() override;
  int awaited(Operation& op) const override;
  uint64_t key_of(const Operation& op) const override {
    return &op.lane == &collectives_ ? key_ : 0;
  }
  std::optional<int> awaited_in(uint64_t number) const override;

  WorkPtr begin(std::shared_ptr<Operation>&& op, Program program);
  Program program_of(Operation& op, ConstBytes in, Bytes out) override;

  Pair& pair(int peer);
  bool is_here(int rank) const { return local_ && rank / per_host_ == host_; }

  // What every host has of a buffer that all shall have: the part of host h is at h * stride.
  struct Parts {
    Bytes first = nullptr;
    int64_t stride = 0, bytes = 0;
    ConstBytes own = nullptr;
    // The members of a host have parts of their own, one after the other, and get all.
    bool are_for_members = false;
  };

  // Programs. Sizes are in bytes unless they say elements.
  Program run_greeting(Operation& op);
  Program run_exchange(Operation& op, Parts parts, Program then);
  Program run_one_shot(Operation& op, ConstBytes in, Bytes out, int64_t count);
  Program run_sum_of_all(Operation& op, ConstBytes all, Bytes out, int64_t count);
  // A long one, in rounds; each of its programs goes on with the next.
  struct AllReduce;
  Program run_all_reduce(Operation& op, ConstBytes in, Bytes out);
  Program run_partials(Operation& op, AllReduce& all, int64_t round);
  Program run_own_sum(Operation& op, AllReduce& all, int64_t round);
  Program run_others_sums(Operation& op, AllReduce& all, int64_t round);
  Program turn(Operation& op, AllReduce& all, int64_t k);
  ConstBytes partial(const AllReduce& all, int64_t round, int host) const;
  void start_partials(Operation& op, AllReduce& all, int64_t round);
  Program run_reduce_scatter(Operation& op, ConstBytes in, Bytes out);
  Program run_all_gather(Operation& op, ConstBytes in, Bytes out);
  Program run_broadcast(Operation& op, Bytes buffer);
  Program run_reduce(Operation& op, ConstBytes in, Bytes out);
  Program run_gather(Operation& op, ConstBytes in, Bytes out);
  Program run_scatter(Operation& op, ConstBytes in, Bytes out);
  Program run_all_to_all(Operation& op, ConstBytes in, Bytes out);
  Program run_barrier(Operation& op);
  Program run_send(Operation& op, Channel& channel, ConstBytes in);
  Program run_recv(Operation& op, Channel& channel, Bytes out);

  Way way_of(int64_t bytes) const {
    return {bytes > kMessageBytes, seat_->port->piece_bytes(bytes)};
  }

  // Steps of programs.
  int member(int host, int place) const { return host * per_host_ + place; }
  Channel& rail(int host) { return *rails_[size_t(host)]; }
  auto may_send(Operation& op, Channel& channel, int peer, Way way = {});
  bool has_room(const Channel& channel, int64_t bytes) const {
    return seat_->port->has_room(channel, bytes);
  }
  auto room_made(Operation& op, int peer);
  // From memory that stays as it is until all has left.
  void send_message(Operation& op, Channel& channel, int peer, ConstBytes from, int64_t bytes,
                    Way way = {});
  // The same, behind something short that is copied and has some room.
  struct Head {
    ConstBytes from;
    int64_t bytes, room;
  };
  void send_behind(Operation& op, Channel& channel, Head head, ConstBytes from, int64_t bytes);
  void send_written(Operation& op, Channel& channel, int64_t bytes);  // what is in the payload
  auto message_of(Operation& op, Channel& channel, int peer, Way way = {});
  // To where it was expected, if it came straight.
  void take_message(Operation& op, Channel& channel, int peer, Bytes to, int64_t bytes,
                    Way way = {});
  auto all_left(Operation& op, int host);
  void check_message(const Operation& op, const Channel& channel, int peer);
  void check(const Operation& op, const MessageHeader& header, int peer);
  const Call* contradicted_by(const MessageHeader& header) const;
  CommError mismatch_with(const Call& own, const MessageHeader& theirs) const;
  std::string step_label(const Operation& op) const;
  // A step inside the host. `at_second_hand`: its members may wait for other hosts in their turn.
  void started(Operation& op, const WorkPtr& step, bool at_second_hand = false);
  auto all_steps_done(Operation& op);
  auto steps_done_but(Operation& op, int later);

  int hosts_ = 1, per_host_ = 1;  // the grid
  int host_ = 0, place_ = 0;      // this rank's

  std::unique_ptr<Group> local_;  // of the members on this host, if it counts several
  std::vector<std::unique_ptr<Channel>> rails_;  // by host; none to its own
  std::vector<uint64_t> heard_;  // number of the last call that each host's rail told
  std::map<int, std::unique_ptr<Pair>> pairs_;
  mutable std::map<int, std::chrono::steady_clock::time_point> gone_since_;  // of members

  std::atomic<uint64_t> steps_done_{0};
  uint64_t steps_started_ = 0;
  Call current_, previous_;  // the collectives that were begun last
  Scratch scratch_{*seat_, true}, more_scratch_{*seat_, false};  // of the collective under way
  std::shared_ptr<AllReduce> all_reduce_;  // the same; only its own file knows what it is
};

}  // namespace smp::shm
