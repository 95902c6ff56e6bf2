#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// A rank's progress in memory that it shares with smp-launch or the agent of its host. The rank
// posts and the others read whenever they like. Nobody waits for anybody.
namespace smp::runinfo {

class StepRecorder;

// The state that a rank has posted. Plain data.
struct RankProgress {
  uint64_t posts = 0;  // grows with each
  int64_t step = 0;    // under way, from 1; 0 = none yet
  int64_t microbatch = -1;
  int64_t layer = -1;
  std::string phase;        // "forward"
  int64_t collectives = 0;  // begun by this rank, those of all groups together
  std::string collective;   // the label of the last
  bool waiting = false;     // for its peers, in a collective
  // About the last step that was done.
  int64_t steps_done = 0;
  int64_t steps = 0;  // of the run
  double loss = 0;
  double tokens_per_s = 0;
  double step_s = 0;

  friend bool operator==(const RankProgress&, const RankProgress&) = default;
};

// The memory itself, all zero at first. Both sides must be the same build. A writer makes the
// version odd while it writes, so that a reader can detect torn words.
struct ProgressPage {
  static constexpr int64_t kBytes = 4096;  // one page of memory for each rank
  static constexpr size_t kNameWords = 4;
  using Number = std::atomic<int64_t>;
  using Name = std::array<std::atomic<uint64_t>, kNameWords>;  // cut to 31 bytes

  std::atomic<uint64_t> version{0};  // 0: nothing was posted
  Number step{0}, microbatch{0}, layer{0}, collectives{0}, waiting{0};
  Name phase{}, collective{};
  Number steps_done{0}, steps{0};
  std::atomic<double> loss{0}, tokens_per_s{0}, step_s{0};
};
static_assert(sizeof(ProgressPage) <= ProgressPage::kBytes);
static_assert(std::atomic<double>::is_always_lock_free);

// Empty if nothing was posted. Any thread or process. If a rank was killed while it posted, the
// words may be those of two posts.
std::optional<RankProgress> read_progress(const ProgressPage& page);

// A rank's side of its page. One thread.
class ProgressPost {
 public:
  explicit ProgressPost(ProgressPage& page) : page_(page) {}
  // Also receives the phases and waits; must outlive the last post.
  void record(StepRecorder& recorder) { recorder_ = &recorder; }

  void enter(const char* phase, int64_t step, int64_t microbatch, int64_t layer);
  void begin_collective(std::string_view label);
  void wait(bool waiting);
  void end_step(int64_t done, int64_t steps, double loss, double tokens_per_s, double step_s);

 private:
  template <typename Write>
  void post(const Write& write);

  ProgressPage& page_;
  StepRecorder* recorder_ = nullptr;
};

}  // namespace smp::runinfo
