#include "smp/launcher/supervision/output_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace smp::supervision {

using std::chrono::milliseconds;
using std::chrono::seconds;

void OutputWatch::wrote(int rank, Clock::time_point now) {
  wrote_at_[static_cast<size_t>(rank)] = now;
  moved(now);
}

void OutputWatch::forget(int rank, Clock::time_point now) {
  running_[static_cast<size_t>(rank)] = false;
  moved(now);
}

void OutputWatch::overlook(Clock::duration time, Clock::time_point now) {
  moved_at_ = std::min(moved_at_ + time, now);
  for (Clock::time_point& at : wrote_at_) at = std::min(at + time, now);
}

void OutputWatch::moved(Clock::time_point now) {
  if (told_) recovered_ = std::chrono::duration_cast<milliseconds>(now - moved_at_);
  told_ = false;
  moved_at_ = now;
}

std::optional<milliseconds> OutputWatch::recovery() { return std::exchange(recovered_, {}); }

std::optional<job::Hang> OutputWatch::hang(Clock::time_point now) {
  if (!limit_ || told_ || now - moved_at_ < *limit_) return std::nullopt;
  if (std::find(running_.begin(), running_.end(), true) == running_.end()) return std::nullopt;
  told_ = true;
  job::Hang hang;
  hang.by_output = true;
  hang.silent = std::chrono::duration_cast<milliseconds>(now - moved_at_);
  // Ranks by their silence in whole seconds, the longest first: others may wait for these ranks.
  std::map<int64_t, std::vector<int>, std::greater<>> silent_for;
  for (size_t rank = 0; rank < running_.size(); ++rank) {
    if (running_[rank])
      silent_for[std::chrono::duration_cast<seconds>(now - wrote_at_[rank]).count()].push_back(
          static_cast<int>(rank));
  }
  for (auto& [time, ranks] : silent_for)
    hang.places.push_back({std::move(ranks), fmt::format("silent for {} s", time)});
  return hang;
}

}  // namespace smp::supervision
