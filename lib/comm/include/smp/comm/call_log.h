#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/mesh/collective.h"

namespace smp::comm {

// One call in a CallLog. Times are ages at the moment when the log was read. The age of an event
// that has not happened yet is zero.
struct LoggedCall {
  enum class State { kEnqueued, kStarted, kDone, kFailed };
  uint64_t number = 0;  // as in errors: among the group's collectives, or a pair's messages
  mesh::CollectiveOp op = mesh::CollectiveOp::kBarrier;
  DType dtype = DType::kU8;
  int64_t count = 0;
  std::string label;  // its first 39 characters
  int peer = -1;      // global rank of the root or of the other side; -1: none
  // The group: its size, its first member (global rank), and the distance between its members; 0 if
  // that is not the same for all.
  int group_size = 1, group_first = 0, group_stride = 0;
  State state = State::kEnqueued;
  std::chrono::nanoseconds enqueued{}, started{}, ended{};
};

// The last calls of one rank in all of its groups, oldest first: they show what the rank was doing
// when something went wrong. Memory is fixed, and writing takes no lock. Any thread may read at any
// time, also after the communicators have ended. Reading leaves out an entry that is being
// overwritten.
class CallLog {
 public:
  static constexpr size_t kCalls = 1024;

  explicit CallLog(int rank);

  std::vector<LoggedCall> calls() const;
  // The last `most` of them as a table with a headline, for people.
  std::string text(size_t most = kCalls) const;

  // For communicators. `enqueue` returns the entry that the other two take. `call` says what is
  // called, by which group, and whether it has started.
  uint64_t enqueue(const LoggedCall& call, std::string_view label);
  void start(uint64_t entry);
  void end(uint64_t entry, bool failed);

 private:
  static constexpr size_t kLabelWords = 5;
  struct alignas(64) Entry {
    std::atomic<uint64_t> sequence;  // number of the rank's call, from 1; 0 while it is written
    std::atomic<uint64_t> number, count, what, group;
    std::atomic<uint64_t> enqueued, started, ended;  // ticks
    std::atomic<uint64_t> label[kLabelWords];
    std::atomic<uint32_t> state;
  };
  Entry* entry_of(uint64_t sequence);

  const int rank_;
  const uint64_t first_ticks_;
  const std::chrono::steady_clock::time_point first_time_;
  std::atomic<uint64_t> made_{0};
  std::vector<Entry> entries_;
};

}  // namespace smp::comm
