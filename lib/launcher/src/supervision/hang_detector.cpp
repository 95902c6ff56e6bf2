#include "supervision/hang_detector.h"

#include <fmt/format.h>

#include <utility>

#include "smp/launcher/hosts/duration.h"

namespace smp::supervision {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenLooks{500};
constexpr milliseconds kOverlooked = 3 * kBetweenLooks;  // smp-launch itself was stopped

}  // namespace

HangDetector::HangDetector(const job::LaunchJob& job, job::Host& host, output::Console& console,
                           Clock::time_point now)
    : job_(job),
      host_(host),
      console_(console),
      progress_(job.rules.hang_limit, job.commands.size(), now),
      output_watch_(job.rules.hang_limit.output_timeout, job.commands.size(), now),
      dump_(job.rules.hang_dump, host),
      next_look_(now + kBetweenLooks) {}

void HangDetector::wrote(int rank, Clock::time_point now) {
  if (hang_) dump_.saw_output(now);
  // The output of a stack dump is no progress.
  if (job_.rules.hang_limit.output_timeout && dump_.is_over(now)) output_watch_.wrote(rank, now);
}

void HangDetector::ended(int rank, Clock::time_point now) {
  progress_.forget(rank, now);
  output_watch_.forget(rank, now);
  dump_.forget(rank);
}

void HangDetector::look(const std::vector<job::RankState>& ranks, Clock::time_point now,
                        bool held) {
  const Clock::duration since = now - (next_look_ - kBetweenLooks);
  if (since > kOverlooked || held) {
    progress_.overlook(since, now);
    output_watch_.overlook(since, now);
  }
  next_look_ = now + kBetweenLooks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (!ranks[i].ended) progress_.see(rank, host_.progress(rank), ranks[i].stopped, now);
  }
  auto stood = progress_.recovery();
  if (const auto was_silent = output_watch_.recovery()) stood = was_silent;
  // The end of a rank that was asked for its stacks does not end the hang.
  if (!stood || (hang_ && hang_->by_output)) return;
  hang_.reset();
  console_.say(fmt::format("smp-launch: the ranks make progress again, after {}\n",
                           hosts::duration_text(*stood)));
}

std::optional<job::Hang> HangDetector::ends_job(Clock::time_point now) {
  if (!hang_ || !dump_.is_over(now)) return std::nullopt;
  return std::exchange(hang_, std::nullopt);
}

std::optional<job::Hang> HangDetector::found(const std::vector<job::RankState>& ranks,
                                             Clock::time_point now) {
  std::optional<job::Hang> hang = progress_.hang(now);
  if (!hang) hang = output_watch_.hang(now);
  if (!hang) return std::nullopt;
  if (!job_.rules.ends_on_hang) console_.say(fmt::format("smp-launch: {}\n", text_of(*hang)));
  dump_.begin(ranks, now);
  if (job_.rules.ends_on_hang) hang_ = hang;
  return hang;
}

}  // namespace smp::supervision
