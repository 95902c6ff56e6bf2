#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "doorbell.h"
#include "layout.h"
#include "mapping.h"
#include "smp/comm/communicator.h"

namespace smp::shm {

struct Failure {
  CommError::Kind kind;
  int culprit;  // global ranks
  int finder;
  std::string text;
};

// Address space of which each rank has a part of its own, in rank order, for buffers that the other
// ranks read in place. Costs nothing until it is used.
struct SymmetricRegion {
  std::byte* begin;
  size_t bytes_per_rank;
};

// What a job has besides the ranks of this host.
class Outside {
 public:
  virtual ~Outside() = default;
  virtual std::string place_of(int rank) const = 0;  // " (rank 3 is on host b)", for errors
  virtual void failed(const FailureRecord& record, const Failure& failure) = 0;  // here, just now
};

// The shared memory of a job as one process sees it: the header, a board per rank, the blocks of
// all groups and the symmetric region. Blocks are found by key, so members of a group need no
// message to meet. All functions may be called from any thread of any rank.
class Job {
 public:
  // Address space of a job of `size` ranks of which so many are on this host, who share it.
  static size_t bytes(int size, int ranks_here);
  // Of a rank, for symmetric memory, where the host has so much memory and this process so many
  // addresses left: twice an even share of the memory, if several such jobs fit.
  static size_t symmetric_bytes_per_rank(int ranks_here, size_t physical, size_t left);
  // Once, by whoever made the mapping.
  static void prepare(Mapping& mapping, int size, int ranks_here);
  Job(Mapping mapping, int size);

  int size() const { return size_; }
  RankBoard& board(int rank) const { return boards_[rank]; }

  // Wakes whoever sleeps in `rank`.
  void ring(int rank) const {
    if (board(rank).sleeper.load() != RankBoard::kNobody) wake(rank);
  }
  // The same if it waits for a counter of rank `mover`. Call after the counter has moved.
  void ring(int rank, int mover) const {
    const RankBoard& b = board(rank);
    if (b.sleeper.load() != RankBoard::kNobody && (b.waits_for.load() & bit_of(mover)) != 0) {
      wake(rank);
    }
  }
  // The same for those alone who wait, not for threads whose rank computes.
  void ring_waiter(int rank, int mover) const {
    if (board(rank).sleeper.load() == RankBoard::kWaiter) ring(rank, mover);
  }
  // A rank's place in RankBoard::waits_for, which it may share.
  static uint64_t bit_of(int rank) { return uint64_t{1} << (rank % 64); }

  // The block of the group with this key, made by whoever comes first. Returns its place in the
  // table. Throws CommError when another rank is stopped while it has the table, longer than
  // `limit`; std::runtime_error when the table is full.
  int open_group(uint64_t key, int group_size, int rank, std::chrono::milliseconds limit);
  GroupBlock block(int place) const;
  void close_group(int place, int rank, std::chrono::milliseconds limit);

  SymmetricRegion symmetric() const;
  // Where `bytes` bytes from p on lie, as an offset that means the same to all ranks; -1 outside
  // the symmetric region.
  int64_t offset_of(const void* p, int64_t bytes) const;
  std::byte* at(int64_t offset) const { return mapping_.data() + offset; }

  // Unless the record has been written: tells the outside and writes it. Wakes everybody.
  void fail(FailureRecord& record, const Failure& failure);
  // The same of what the outside has told this rank, which writes it.
  void write(FailureRecord& record, const Failure& failure, int writer);
  void set_outside(Outside* outside);
  std::optional<Failure> read(const FailureRecord& record) const;
  FailureRecord& failure() const { return header().failure; }
  FailureRecord& group_failure(int place) const { return header().group_failures[place]; }
  uint32_t failures() const { return header().failures.load(); }

  // Of the ranks here whose threads do not sleep at futexes. Before anybody calls.
  void set_doorbells(std::vector<Doorbell> by_rank) { doorbells_ = std::move(by_rank); }
  const Doorbell* doorbell(int rank) const {
    return doorbells_.empty() || !doorbells_[size_t(rank)] ? nullptr : &doorbells_[size_t(rank)];
  }

 private:
  int open_groups() const;
  JobHeader& header() const { return *reinterpret_cast<JobHeader*>(mapping_.data()); }
  void wake(int rank) const;

  Mapping mapping_;
  int size_;
  RankBoard* boards_;
  std::vector<Doorbell> doorbells_;
  std::mutex outside_mutex_;
  Outside* outside_ = nullptr;
};

}  // namespace smp::shm
