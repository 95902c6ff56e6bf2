#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "groups/group_side.h"
#include "groups/shm/result_writes.h"
#include "groups/shm/slot_writes.h"

namespace smp::groups {

// One rank's side of a group inside a host. The programs (collectives.cpp, all_reduce.cpp,
// direct.cpp, rooted.cpp, messages.cpp) own the counters below.
class Group final : public GroupSide {
  friend class GroupWindow;

 public:
  Group(std::shared_ptr<RankContext> context, std::vector<int> globals, int rank, uint64_t key,
        std::vector<RecordPtr> parents);
  ~Group() override;

  // The collective that runs now, null if none does, and the rank that it waits for, as Member
  // says. Under the engine's lock.
  progress::Operation* under_way() const {
    return collectives_.operations.empty() ? nullptr : collectives_.operations.front().get();
  }
  using GroupSide::awaited;

  // When this side ends, peers see the same as after an exception. They learn the reason otherwise.
  void close_silently() { is_silent_ = true; }

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

  std::unique_ptr<comm::PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                                std::string_view label) override;

  std::vector<comm::TrafficCount> traffic() const override { return traffic_.counts(size_); }
  int64_t segment_bytes() const override { return smp::mesh::segment_bytes(size_); }

 private:
  struct Peer {
    progress::Lane sends, recvs;
    uint64_t sent = 0, received = 0;         // messages, counted by the caller
    uint64_t chunks_out = 0, chunks_in = 0;  // counted by the programs
    SlotWrites writes;                       // how its messages are written
  };

  bool has_left(int rank) const override;
  bool has_abandoned(int rank) const override;
  bool has_called(int rank, const progress::Call& call) const override;
  void check_calls(const progress::Operation& op) const override;
  int counter_owner(const progress::Operation& op, int peer) const override;
  void finished(const progress::Operation& op) override;

  progress::Program program_of(progress::Operation& op, ConstBytes in, Bytes out) override;

  bool may_post_early(const progress::Call& call) const;

  // Notes where the buffers lie. Returns whether peers can use them at all; for an all_gather the
  // input may be enough.
  bool may_be_direct(progress::Call& call, ConstBytes in, int64_t in_bytes, ConstBytes out,
                     int64_t out_bytes) const;
  bool is_one_shot(const progress::Call& call) const;
  // Whether private buffers of an all_reduce go through this rank's ring. If so, notes the ring's
  // place.
  bool may_go_through_ring(progress::Call& call) const;

  // Programs. Sizes are in bytes unless they say elements.
  progress::Program run_one_shot(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_gather_of_parts(progress::Operation& op, Bytes out, bool non_temporal);
  progress::Program run_all_gather(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_reduce_scatter(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program direct_or_staged(progress::Operation& op, ConstBytes in, Bytes out,
                                     bool direct);
  progress::Program staged(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program direct(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_direct_or_staged(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_through_ring(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_direct_all_gather(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_direct_parts(progress::Operation& op, Bytes out);
  progress::Program run_direct_one_shot(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_broadcast(progress::Operation& op, Bytes buffer);
  progress::Program run_to_root(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_exchange(progress::Operation& op, ConstBytes in, Bytes out);
  progress::Program run_barrier(progress::Operation& op);
  progress::Program run_send(progress::Operation& op, ConstBytes in);
  progress::Program run_recv(progress::Operation& op, Bytes out);
  progress::Program run_alone(progress::Operation& op, ConstBytes in, Bytes out, int64_t bytes);

  // The bytes that all ranks read and write in the call, and whether they fill the last-level
  // caches.
  int64_t touched_bytes(const progress::Call& call, bool is_in_place = false) const;
  bool fills_cache(const progress::Call& call, bool is_in_place = false) const;
  bool about_fills_cache(const progress::Call& call) const;  // others may use the cache as well
  // How a new call of this kind writes its results, if it is not in place.
  ResultWrites::StorePolicy result_writes(const progress::Call& call, ResultWrites& kind) const;
  ResultWrites::StorePolicy result_writes_of_parts(const progress::Operation& op);
  void write_slot(const progress::Operation& op, SlotWrites& writes, Bytes to, ConstBytes from,
                  int64_t bytes) const;

  // Steps of programs.
  int next(int step) const { return (rank_ + step) % size_; }
  void show_call(progress::Operation& op);
  void begin(progress::Operation& op, int slots_at_once = 1);
  void post(progress::Operation& op);
  auto called_by(progress::Operation& op, int peer);
  auto called_by_all(progress::Operation& op);
  void check_call(const progress::Operation& op, int peer) const;
  void check_slot(const progress::Operation& op, int peer);
  int odd_one_out(const progress::Operation& op, int peer) const;
  auto slot_free(progress::Operation& op, int reader);
  bool writes_next(int64_t written, int64_t taken);
  uint64_t slots_needed() const;
  bool has_taken(int reader, uint64_t slots);
  // If two slots are written at once, the first one has an even number.
  uint64_t place_of(uint64_t slot) const { return slot + (slot & (at_once_ - 1)); }
  // The address of the `bytes` in a slot, or in its first piece. The bytes may rotate within
  // `room`, unless two slots are written at once.
  Bytes place_in(int rank, uint64_t slot, int64_t bytes, int64_t room) const {
    return block_.slot(rank, place_of(slot), bytes, at_once_ == 1 ? room : 0);
  }
  Bytes my_slot(int64_t bytes) const {
    return place_in(rank_, published_, bytes, mesh::kSlotBytes);
  }
  void publish(progress::Operation& op, int64_t wire_bytes);
  auto slot_of(progress::Operation& op, int peer);
  ConstBytes peer_slot(int peer, int64_t bytes) const {
    return place_in(peer, consumed_[size_t(peer)], bytes, mesh::kSlotBytes);
  }
  uint64_t count_taken(int peer);
  void take(int peer);
  void take_only(int peer);
  void take_all(bool is_only = false);
  void take_unread(int peer, int64_t slots);
  // Distance between the pieces of a slot, or of two slots that are written at once.
  int64_t piece_bytes() const { return int64_t(at_once_) * piece_bytes_; }
  void publish_pieces(progress::Operation& op, ConstBytes in, int64_t count, int64_t chunk,
                      int64_t step);
  ConstBytes piece_from(int peer, int64_t bytes) const;
  void ring_peers() const;
  bool all_have_called(const progress::Operation& op) const;
  void ring_waiting_peers() const;

  // Steps of direct programs.
  ConstBytes in_of(const progress::Operation& op, int peer) const;
  Bytes out_of(const progress::Operation& op, int peer) const;
  bool are_apart(const progress::Operation& op) const;
  void count_slot(progress::Operation& op, int64_t wire_bytes);
  bool was_whole(const progress::Operation& op, int peer) const;
  auto all_taken(progress::Operation& op, int reader);
  auto never(progress::Operation& op, int peer);
  struct Pieces {
    int count;         // in each part
    int64_t elements;  // in each piece; the last ones may have fewer, or none
    int64_t chunk;     // elements that are computed at once
  };
  int64_t part_of(const progress::Call& call, int owner) const;
  int cpus_of_parts() const;
  Pieces pieces_of(const progress::Call& call) const;
  int first_piece(const Pieces& pieces) const;
  bool is_to_be_made(const progress::Operation& op, int owner, int piece) const;
  bool claim_piece(const progress::Operation& op, int owner, int piece);
  int64_t output_bytes(const progress::Call& call) const;
  bool map_ahead(const progress::Operation& op, int peer, int64_t at, int64_t bytes);
  struct Part {
    int owner;
    bool non_temporal;  // its results are written by non-temporal stores
  };
  void make_chunks(const progress::Operation& op, Part part, int64_t begin, int64_t end,
                   int64_t chunk);
  int chunks_at_once() const;
  void map_chunks(const progress::Operation& op, int owner, int64_t begin, int64_t end);
  void spread_chunk(const progress::Operation& op, Part part, int64_t at, int64_t count);
  void reduce_chunk(const progress::Operation& op, Part part, int64_t at, int64_t count);
  bool all_are_done(const progress::Operation& op, const Pieces& pieces) const;
  void ring_of_parts(const progress::Operation& op);
  auto all_done(progress::Operation& op, int piece, bool or_wanted);
  void close_parts(const progress::Operation& op);
  bool has_given_up(int peer) const;
  static bool may_be_of_parts(const progress::Operation& op);

  segment::GroupBlock block_;  // none in a group of one

  std::atomic<uint64_t> completed_{0};  // collectives
  std::vector<Peer> peers_;

  uint64_t published_ = 0, before_ = 0;  // slots; of these, before the running call
  uint64_t at_once_ = 1;                 // slots that the running program writes at once, 1 or 2
  const int64_t piece_bytes_;            // distance between the pieces of one slot: whole lines
  std::vector<uint64_t> consumed_;
  // How slots for each peer are written; this rank's own entry: slots that all peers read.
  std::vector<SlotWrites> writes_;
  ResultWrites staged_gathers_, direct_gathers_, staged_scatters_;
  ResultWrites gathers_of_parts_, scatters_of_parts_, sums_of_parts_;
  std::vector<uint64_t> taken_;      // slots that each reader is known to have taken
  std::vector<ConstBytes> sources_;  // inputs of one reduction

  bool is_silent_ = false;
};

}  // namespace smp::groups
