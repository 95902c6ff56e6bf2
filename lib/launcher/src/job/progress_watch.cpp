#include "smp/launcher/job/progress_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/hosts/rank_list.h"

namespace smp::job {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLeast{60'000};
constexpr milliseconds kBeforeSteps{600'000};
constexpr double kSteps = 10;
constexpr size_t kListedPlaces = 16;

const char* verb_of(const Hang& hang, size_t ranks) {
  if (hang.by_output) return ranks == 1 ? "is" : "are";
  return ranks == 1 ? "is at" : "are at";
}

}  // namespace

std::string text_of(const runinfo::RankProgress& at, bool stopped) {
  std::string text = at.step > 0 ? fmt::format("step {}: {}", at.step, at.phase) : at.phase;
  if (at.microbatch >= 0) text += fmt::format(", microbatch {}", at.microbatch);
  if (at.layer >= 0) text += fmt::format(", layer {}", at.layer);
  if (at.collectives > 0)
    text += fmt::format("; {} collective {} ({})", at.waiting ? "waits in" : "not waiting, last",
                        at.collectives, at.collective);
  if (stopped) text += "; stopped by a signal";
  return text;
}

std::string text_of(const Hang& hang) {
  std::string text =
      fmt::format("no rank has {} for {}", hang.by_output ? "written anything" : "made progress",
                  hosts::duration_text(hang.silent));
  if (!hang.behind.empty())
    text += fmt::format("; the others wait for {}", hosts::text_of_ranks(hang.behind));
  for (size_t i = 0; i < hang.places.size() && i < kListedPlaces; ++i)
    text += fmt::format("\n  {} {} {}", hosts::text_of_ranks(hang.places[i].ranks),
                        verb_of(hang, hang.places[i].ranks.size()), hang.places[i].where);
  if (hang.places.size() > kListedPlaces)
    text += fmt::format("\n  and {} other places", hang.places.size() - kListedPlaces);
  return text;
}

void ProgressWatch::see(int rank, std::optional<runinfo::RankProgress> progress, bool stopped,
                        Clock::time_point now) {
  Rank& one = ranks_[rank];
  one.stopped = stopped;
  if (!progress) return;
  if (!one.at || one.at->posts != progress->posts) moved(now);
  if (!one.at || one.at->steps_done != progress->steps_done)
    longest_step_s_ = std::max(progress->step_s, 0.9 * longest_step_s_);
  one.at = std::move(progress);
}

void ProgressWatch::forget(int rank, Clock::time_point now) {
  ranks_[rank].running = false;
  moved(now);
}

void ProgressWatch::overlook(Clock::duration time, Clock::time_point now) {
  moved_at_ = std::min(moved_at_ + time, now);  // it may have moved within that time
  if (told_since_) told_since_ = std::min(*told_since_ + time, now);
}

void ProgressWatch::moved(Clock::time_point now) {
  if (told_since_) recovered_ = std::chrono::duration_cast<milliseconds>(now - *told_since_);
  told_since_.reset();
  moved_at_ = now;
}

std::optional<milliseconds> ProgressWatch::recovery() { return std::exchange(recovered_, {}); }

milliseconds ProgressWatch::limit() const {
  if (limit_.time) return *limit_.time;
  if (longest_step_s_ == 0) return kBeforeSteps;
  return std::max(kLeast, milliseconds(static_cast<int64_t>(kSteps * longest_step_s_ * 1000)));
}

std::optional<Hang> ProgressWatch::hang(Clock::time_point now) {
  if (limit_.off || told_since_ || now - moved_at_ < limit()) return std::nullopt;
  bool any = false;
  for (const Rank& one : ranks_) {
    if (one.running && !one.at) return std::nullopt;
    any = any || one.running;
  }
  if (!any) return std::nullopt;
  told_since_ = moved_at_;
  return describe(now);
}

// Who does not wait is waited for. Where all wait, the ranks of an earlier step are behind, or a
// few that have begun fewer collectives than all others, who have begun equally many: stages of a
// pipeline differ in number by themselves.
std::vector<int> ProgressWatch::behind() const {
  std::map<std::pair<bool, int64_t>, std::vector<int>> by_step;  // waiting, step
  std::map<int64_t, std::vector<int>> by_calls;
  size_t running = 0;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (!ranks_[rank].running) continue;
    const runinfo::RankProgress& at = *ranks_[rank].at;
    by_step[{at.waiting, at.step}].push_back(rank);
    by_calls[at.collectives].push_back(rank);
    ++running;
  }
  if (by_step.size() > 1) return by_step.begin()->second;
  const std::vector<int>& fewest = by_calls.begin()->second;
  if (by_calls.size() == 2 && 2 * fewest.size() < running) return fewest;
  return {};
}

Hang ProgressWatch::describe(Clock::time_point now) const {
  Hang hang;
  hang.silent = std::chrono::duration_cast<milliseconds>(now - moved_at_);
  hang.behind = behind();
  std::map<std::pair<bool, std::string>, std::vector<int>> places;  // not behind, where
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (!ranks_[rank].running) continue;
    const bool late = std::binary_search(hang.behind.begin(), hang.behind.end(), rank);
    places[{!late, text_of(*ranks_[rank].at, ranks_[rank].stopped)}].push_back(rank);
  }
  for (auto& [key, ranks] : places) hang.places.push_back({std::move(ranks), key.second});
  return hang;
}

JobView ProgressWatch::view(Clock::time_point now) const {
  JobView view;
  view.ranks = static_cast<int>(ranks_.size());
  for (const Rank& rank : ranks_) {
    if (rank.running) ++view.running;
    if (!rank.at) continue;
    if (!view.progress) view.progress = rank.at;
    if (!rank.running) continue;
    const int64_t step = rank.at->step;
    view.slowest_step = view.slowest_step == 0 ? step : std::min(view.slowest_step, step);
  }
  if (view.progress) view.silent = silent(now);
  return view;
}

}  // namespace smp::job
