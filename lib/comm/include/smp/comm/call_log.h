#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/collective.h"
#include "smp/plan/dtype.h"

namespace smp {

// One call as a CallLog remembers it. Times are ages, before the log was read; those of what has
// not happened yet are zero.
struct LoggedCall {
  enum class State { kEnqueued, kStarted, kDone, kFailed };
  uint64_t number = 0;  // as errors name it: among the group's collectives, or a pair's messages
  CollectiveOp op = CollectiveOp::kBarrier;
  DType dtype = DType::kU8;
  int64_t count = 0;
  std::string label;  // its first 39 characters
  int peer = -1;      // global rank of the root or the other side, of calls that have one
  // The group: its size, its first member, and how far apart its members are; 0 when they are not
  // equally far.
  int group_size = 1, group_first = 0, group_stride = 0;
  State state = State::kEnqueued;
  std::chrono::nanoseconds enqueued{}, started{}, ended{};
};

// The last calls of one rank in all of its groups, oldest first: what it was at when something went
// wrong. Memory is fixed, writing takes no lock, and any thread may read at any time, also after
// the communicators have ended; an entry that is being written over is left out.
class CallLog {
 public:
  static constexpr size_t kCalls = 1024;

  explicit CallLog(int rank);

  std::vector<LoggedCall> calls() const;
  // The last `most` of them as a table, with a line for the columns; for people.
  std::string text(size_t most = kCalls) const;

  // For communicators: what `enqueue` gives names the call in the others. Of `call` what it is, its
  // group and whether it has started are read.
  uint64_t enqueue(const LoggedCall& call, std::string_view label);
  void start(uint64_t entry);
  void end(uint64_t entry, bool failed);

 private:
  static constexpr size_t kLabelWords = 5;
  struct alignas(64) Entry {
    std::atomic<uint64_t> sequence;  // 1 + which call of the rank; 0 while it is written
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

}  // namespace smp
