#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// How far a rank is, in memory that it shares with smp-launch or the agent of its host: the rank
// posts, they look when they like. Nobody waits for anybody.
namespace smp::runinfo {

class StepRecorder;

// What a rank has posted. Plain data.
struct RankProgress {
  uint64_t posts = 0;  // grows with each
  int64_t step = 0;    // under way, from 1; 0 = none yet
  int64_t microbatch = -1;
  int64_t layer = -1;
  std::string phase;        // "forward"
  int64_t collectives = 0;  // begun by this rank, those of all groups together
  std::string collective;   // the label of the last
  bool waiting = false;     // for its peers, in a collective
  // Of the last step that was done.
  int64_t steps_done = 0;
  int64_t steps = 0;  // of the run
  double loss = 0;
  double tokens_per_s = 0;
  double step_s = 0;

  friend bool operator==(const RankProgress&, const RankProgress&) = default;
};

// The memory itself, all zero at first. Its layout is that of the same build on both sides. A
// writer makes the version odd while it writes, so that a reader can tell torn words.
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

// Empty while nothing was posted. Any thread or process. A rank that was killed while it posted
// leaves words of two posts.
std::optional<RankProgress> read_progress(const ProgressPage& page);

// A rank's side of its page. One thread.
class ProgressPost {
 public:
  explicit ProgressPost(ProgressPage& page) : page_(page) {}
  // Is told of the phases and waits, too; must outlive the last post.
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
