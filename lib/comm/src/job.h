#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// The shared memory of a job as one process sees it: the header, a board per rank and the blocks of
// all groups. Blocks are found by key, so members of a group need no message to meet. All functions
// may be called from any thread of any rank.
class Job {
 public:
  static size_t bytes(int size);
  static void prepare(Mapping& mapping, int size);  // once, by whoever made the mapping
  Job(Mapping mapping, int size);

  int size() const { return size_; }
  RankBoard& board(int rank) const { return boards_[rank]; }

  // Wakes whoever sleeps in `rank`. Call after the counter has moved.
  void ring(int rank) const {
    if (board(rank).sleeper.load() != RankBoard::kNobody) wake(rank);
  }

  // The block of the group with this key, made by whoever comes first. Returns its place in the
  // table.
  int open_group(uint64_t key, int group_size);
  GroupBlock block(int place) const;
  void close_group(int place);

  // Writes the record unless it has been written, and wakes everybody.
  void fail(FailureRecord& record, const Failure& failure);
  std::optional<Failure> read(const FailureRecord& record) const;
  FailureRecord& failure() const { return header().failure; }
  FailureRecord& group_failure(int place) const { return header().group_failures[place]; }
  uint32_t failures() const { return header().failures.load(); }

 private:
  JobHeader& header() const { return *reinterpret_cast<JobHeader*>(mapping_.data()); }
  void wake(int rank) const;

  Mapping mapping_;
  int size_;
  RankBoard* boards_;
};

void store(LooseText& to, const std::string& text);
std::string load(const LooseText& from);

}  // namespace smp::shm
