#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smp::runinfo {

// One stretch of a rank's step: a phase, or a wait for peers within it.
struct TimelinePiece {
  std::string phase;  // "forward"
  int64_t microbatch = -1;
  int64_t layer = -1;
  bool waiting = false;  // for its peers, within that phase
  int64_t begin_ns = 0;  // from the begin of the step
  int64_t end_ns = 0;

  friend bool operator==(const TimelinePiece&, const TimelinePiece&) = default;
};

// How a rank spent one step: timeline/rank-<r>.json in the run's folder.
struct StepTimeline {
  int64_t rank = 0;
  int64_t step = 0;
  int64_t began_ns = 0;  // by the clock of its host, since 1970
  bool cut = false;      // there was more than a recorder keeps
  std::vector<TimelinePiece> pieces;

  friend bool operator==(const StepTimeline&, const StepTimeline&) = default;
};

std::string timeline_json(const StepTimeline& timeline);
// Throws ConfigError, "PATH: ...", if the text is not a timeline.
StepTimeline parse_timeline(const std::string& path, std::string_view text);

// Records the third step of a rank: the first ones touch memory for the first time. In that step a
// phase costs two readings of the clock, in all others a comparison. One thread.
class StepRecorder {
 public:
  static constexpr size_t kMostPieces = 1 << 14;

  // `phase` must be a literal; "start" is the begin of a step.
  void enter(const char* phase, int64_t step, int64_t microbatch, int64_t layer);
  void wait(bool waiting);
  bool is_recording() const { return state_ == State::kRecording; }
  // Ends the recording and returns the step as far as it was recorded.
  StepTimeline take(int64_t rank);

 private:
  enum class State { kBefore, kRecording, kOver };
  struct Mark {
    const char* phase;
    int64_t microbatch, layer;
    bool waiting;
    int64_t begin_ns;
  };

  void mark(const Mark& mark);

  State state_ = State::kBefore;
  int steps_begun_ = 0;
  int64_t step_ = 0;
  std::chrono::steady_clock::time_point began_{};
  std::chrono::system_clock::time_point began_at_{};
  std::vector<Mark> marks_;
};

}  // namespace smp::runinfo
