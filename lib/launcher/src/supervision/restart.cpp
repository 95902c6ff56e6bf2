#include "smp/launcher/supervision/restart.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/supervision/report.h"
#include "smp/plan/base/exit_code.h"

namespace smp::supervision {
namespace {

std::optional<int64_t> step_of(const job::JobResult& result) {
  std::optional<int64_t> last;
  const std::optional<int> blamed = result.cause ? std::optional(result.cause->rank)
                                    : result.hang && !result.hang->behind.empty()
                                        ? std::optional(result.hang->behind.front())
                                        : std::nullopt;
  if (blamed && result.ranks[*blamed].progress) return result.ranks[*blamed].progress->step;
  for (const job::RankState& state : result.ranks) {
    if (state.progress) last = std::max(last.value_or(0), state.progress->step);
  }
  return last;
}

std::string at_step(int64_t step) {
  return step == 0 ? std::string("before the first step") : fmt::format("at step {}", step);
}

}  // namespace

Start start_of(const job::LaunchJob& job, const job::JobResult& result, const std::string& from) {
  Start start;
  start.from = from;
  start.end = result.end;
  start.exit_code = result.exit_code;
  start.elapsed = result.elapsed;
  start.cause = one_line_cause(job, result);
  if (result.end == job::JobEnd::kRankFailed || result.end == job::JobEnd::kHang)
    start.failed_step = step_of(result);
  start.lost_host = result.end == job::JobEnd::kHostsUnreachable ||
                    (result.cause && !result.ranks[result.cause->rank].lost.empty());
  return start;
}

RestartDecision decide_restart(const RestartRules& rules, const std::vector<Start>& starts,
                               bool is_plan) {
  const Start& last = starts.back();
  const bool failed = last.end == job::JobEnd::kRankFailed || last.end == job::JobEnd::kHang ||
                      (last.end == job::JobEnd::kHostsUnreachable && starts.size() > 1);
  if (!failed || rules.most == 0) return {};
  const auto no = [](std::string why) { return RestartDecision{false, std::move(why), {}}; };
  // If an earlier start has trained, the configuration was right. A missing file, for example on a
  // network file system, may be available again.
  const bool has_trained = std::any_of(starts.begin(), starts.end(), [](const Start& start) {
    return start.failed_step.value_or(0) > 0;
  });
  if (is_plan && last.end == job::JobEnd::kRankFailed && !has_trained &&
      last.exit_code == static_cast<int>(ExitCode::kBadConfig))
    return no("the error is in the job's configuration, so a restart would fail too");
  const Start* before = starts.size() > 1 ? &starts[starts.size() - 2] : nullptr;
  if (before != nullptr && !last.lost_host && !before->lost_host && last.failed_step &&
      last.failed_step == before->failed_step)
    return no(fmt::format("two starts in a row failed {}", at_step(*last.failed_step)));
  const int made = static_cast<int>(starts.size()) - 1;
  if (made >= rules.most)
    return no(
        fmt::format("{} restart{} made (--max-restarts)", made, made == 1 ? " was" : "s were"));
  auto pause = rules.pause;
  for (int i = 0; i < made && pause < RestartRules::kLongestPause; ++i) pause *= 2;
  return {true, "", std::min(pause, std::max(rules.pause, RestartRules::kLongestPause))};
}

std::string text_of(const Start& start, size_t number) {
  return fmt::format("start {}{} failed after {}{}: {}", number,
                     start.from.empty() ? "" : fmt::format(" (from {})", start.from),
                     hosts::duration_text(start.elapsed),
                     start.failed_step ? fmt::format(", {}", at_step(*start.failed_step)) : "",
                     start.cause);
}

}  // namespace smp::supervision
