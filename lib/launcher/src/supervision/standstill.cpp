#include "supervision/standstill.h"

#include <fmt/format.h>

#include <utility>

#include "smp/launcher/hosts/duration.h"

namespace smp::supervision {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenLooks{500};
constexpr milliseconds kOverlooked = 3 * kBetweenLooks;  // smp-launch itself did not run

}  // namespace

Standstill::Standstill(const job::Job& job, job::Host& host, output::Console& console,
                       Clock::time_point now)
    : job_(job),
      host_(host),
      console_(console),
      progress_(job.rules.hang_limit, job.commands.size(), now),
      silence_(job.rules.hang_limit.silence, job.commands.size(), now),
      dump_(job.rules.hang_dump, host),
      next_look_(now + kBetweenLooks) {}

void Standstill::wrote(int rank, Clock::time_point now) {
  if (hang_) dump_.saw_output(now);
  // What ranks show because they stand still is no sign of life.
  if (job_.rules.hang_limit.silence && dump_.is_over(now)) silence_.wrote(rank, now);
}

void Standstill::ended(int rank, Clock::time_point now) {
  progress_.forget(rank, now);
  silence_.forget(rank, now);
  dump_.forget(rank);
}

void Standstill::look(const std::vector<job::RankState>& ranks, Clock::time_point now, bool held) {
  const Clock::duration since = now - (next_look_ - kBetweenLooks);
  if (since > kOverlooked || held) {
    progress_.overlook(since, now);
    silence_.overlook(since, now);
  }
  next_look_ = now + kBetweenLooks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (!ranks[i].ended) progress_.see(rank, host_.progress(rank), ranks[i].stopped, now);
  }
  auto stood = progress_.recovery();
  if (const auto was_silent = silence_.recovery()) stood = was_silent;
  // Nor is it one that a rank ends of what was asked of it.
  if (!stood || (hang_ && hang_->by_output)) return;
  hang_.reset();
  console_.say(
      fmt::format("smp-launch: the ranks go on, after {}\n", hosts::duration_text(*stood)));
}

std::optional<job::Hang> Standstill::ends_job(Clock::time_point now) {
  if (!hang_ || !dump_.is_over(now)) return std::nullopt;
  return std::exchange(hang_, std::nullopt);
}

std::optional<job::Hang> Standstill::found(const std::vector<job::RankState>& ranks,
                                           Clock::time_point now) {
  std::optional<job::Hang> hang = progress_.hang(now);
  if (!hang) hang = silence_.hang(now);
  if (!hang) return std::nullopt;
  if (!job_.rules.ends_on_hang) console_.say(fmt::format("smp-launch: {}\n", text_of(*hang)));
  dump_.begin(ranks, now);
  if (job_.rules.ends_on_hang) hang_ = hang;
  return hang;
}

}  // namespace smp::supervision
