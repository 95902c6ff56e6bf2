#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "segment/layout.h"
#include "segment/mapping.h"
#include "smp/comm/communicator.h"
#include "waiting/doorbell.h"

namespace smp::segment {

struct Failure {
  comm::CommError::Kind kind;
  int culprit;  // global ranks
  int finder;
  std::string text;
};

// Address space in which each rank has a part of its own, in rank order, for buffers that other
// ranks read in place. It takes no memory until it is used.
struct SymmetricRegion {
  std::byte* begin;
  size_t bytes_per_rank;
};

// The connection to the job's ranks on other hosts, through which failures are reported.
class RemoteHosts {
 public:
  virtual ~RemoteHosts() = default;
  virtual std::string place_of(int rank) const = 0;  // " (rank 3 is on host b)", for errors
  // Called for a failure that this host has just found.
  virtual void failed(const FailureRecord& record, const Failure& failure) = 0;
};

// A job's shared memory, as one process sees it: the header, a board per rank, the blocks of all
// groups and the symmetric region. Blocks are found by key, so members of a group need no message
// to find their block. All functions may be called from any thread of any rank.
class SharedJob {
 public:
  // Address space that a job of `size` ranks needs on a host that has so many of them.
  static size_t bytes(int size, int ranks_here);
  // Address space for one rank's symmetric memory: twice an even share of the `physical` memory of
  // the host, if the `left` address space of the process has room for several such jobs.
  static size_t symmetric_bytes_per_rank(int ranks_here, size_t physical, size_t left);
  // Called once, by the rank that made the mapping.
  static void prepare(Mapping& mapping, int size, int ranks_here);
  SharedJob(Mapping mapping, int size);

  int size() const { return size_; }
  RankBoard& board(int rank) const { return boards_[rank]; }

  // Wakes the sleeping thread of `rank`, if there is one.
  void ring(int rank) const {
    if (board(rank).sleeper.load() != RankBoard::kNobody) wake(rank);
  }
  // As above, if that thread waits for a counter of rank `writer`. Call it after the counter has
  // moved.
  void ring(int rank, int writer) const {
    const RankBoard& b = board(rank);
    if (b.sleeper.load() != RankBoard::kNobody && (b.waits_for.load() & bit_of(writer)) != 0) {
      wake(rank);
    }
  }
  // As above, but wakes only waiting threads, and no engine threads of ranks that compute.
  void ring_waiter(int rank, int writer) const {
    if (board(rank).sleeper.load() == RankBoard::kWaiter) ring(rank, writer);
  }
  // A rank's bit in RankBoard::waits_for; several ranks may share one.
  static uint64_t bit_of(int rank) { return uint64_t{1} << (rank % 64); }

  // Opens the block of the group with this key; the first rank that comes makes it. Returns its
  // index in the table. Throws CommError if the rank that holds the table's lock is stopped for
  // longer than `limit` or the job has failed, and std::runtime_error if the table is full.
  int open_group(uint64_t key, int group_size, int rank, std::chrono::milliseconds limit);
  GroupBlock block(int place) const;
  void close_group(int place, int rank, std::chrono::milliseconds limit);

  SymmetricRegion symmetric() const;
  // The offset of these bytes in the job's memory, which is the same for all ranks; -1 outside the
  // symmetric region.
  int64_t offset_of(const void* p, int64_t bytes) const;
  std::byte* at(int64_t offset) const { return mapping_.data() + offset; }

  // Writes the failure, unless the record has one, and tells other hosts. Wakes all ranks.
  void fail(FailureRecord& record, const Failure& failure);
  // As above, for a failure that another host has reported to rank `writer`.
  void write(FailureRecord& record, const Failure& failure, int writer);
  void set_remote_hosts(RemoteHosts* remote_hosts);
  std::optional<Failure> read(const FailureRecord& record) const;
  FailureRecord& failure() const { return header().failure; }
  FailureRecord& group_failure(int place) const { return header().group_failures[place]; }
  uint32_t failures() const { return header().failures.load(); }

  // The doorbells of ranks here whose threads do not sleep at futexes. Set them before any call.
  void set_doorbells(std::vector<waiting::Doorbell> by_rank) { doorbells_ = std::move(by_rank); }
  const waiting::Doorbell* doorbell(int rank) const {
    return doorbells_.empty() || !doorbells_[size_t(rank)] ? nullptr : &doorbells_[size_t(rank)];
  }

 private:
  int open_groups() const;
  JobHeader& header() const { return *reinterpret_cast<JobHeader*>(mapping_.data()); }
  void wake(int rank) const;

  Mapping mapping_;
  int size_;
  RankBoard* boards_;
  std::vector<waiting::Doorbell> doorbells_;
  std::mutex remote_hosts_mutex_;
  RemoteHosts* remote_hosts_ = nullptr;
};

}  // namespace smp::segment
