#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "smp/launcher/job/host.h"

namespace smp::output {

// Lines that several ranks write alike become one. A line waits up to kWindow for the other ranks;
// the order of each rank's lines stays. One thread.
class LineFold {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kWindow{250};
  static constexpr size_t kMostWaitingBytes = 1 << 20;

  struct Folded {
    std::vector<int> ranks;  // ascending
    job::Stream stream = job::Stream::kOut;
    std::string line;                            // with its end
    std::chrono::system_clock::time_point time;  // of the first
  };

  // `ranks`: how many may say the same.
  explicit LineFold(size_t ranks) : ranks_(ranks) {}

  // Whole lines, each with its end.
  void feed(int rank, job::Stream stream, std::string_view lines,
            std::chrono::system_clock::time_point time, Clock::time_point now);
  // Those whose time has come; with `all`, whatever waits.
  std::vector<Folded> take(Clock::time_point now, bool all = false);
  // When the next one has to be taken.
  std::optional<Clock::time_point> due() const;

 private:
  struct Waiting {
    Folded folded;
    Clock::time_point until;
  };

  bool is_due(const Waiting& first, Clock::time_point now) const;
  void feed_line(int rank, job::Stream stream, std::string_view line,
                 std::chrono::system_clock::time_point time, Clock::time_point now);

  size_t ranks_;
  std::deque<Waiting> waiting_;
  uint64_t taken_ = 0;  // the number of waiting_.front()
  size_t bytes_ = 0;
  std::unordered_map<std::string, std::deque<uint64_t>> numbers_;  // by stream and line
  std::unordered_map<int, uint64_t> next_;  // the first number that a rank's next line may have
};

}  // namespace smp::output
