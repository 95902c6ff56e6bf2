#include "smp/launcher/supervision/report.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <map>

#include "smp/launcher/health/bytes_text.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/hosts/rank_list.h"

namespace smp::supervision {
namespace {

constexpr size_t kListedConsequences = 8;

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string indented(std::string_view text, std::string_view indent) {
  std::string result;
  while (!text.empty()) {
    const std::string_view line = first_line(text);
    result.append(indent).append(line).push_back('\n');
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return result;
}

std::string words_of(const process::RankError& error) {
  return error.phase.empty() ? error.message : error.phase + ": " + error.message;
}

// "stopped responding": the cause in words, without its rank.
std::string cause_text(const job::JobResult& result) {
  const job::Cause& cause = *result.cause;
  const job::RankState& state = result.ranks[cause.rank];
  if (state.failed_by_itself())
    return fmt::format("{}, {} after the start", text_of(state.end),
                       hosts::duration_text(state.after));
  if (!cause.alive) return text_of(state.end) + " while other ranks still needed it";
  if (cause.stopped) return "stopped responding: a signal such as SIGSTOP has stopped its process";
  const auto& error = result.ranks[cause.witness].error;
  if (error && error->kind == process::RankErrorKind::kPeerLost)
    return "lost its connections to other ranks, but is still running";
  if (error && error->kind == process::RankErrorKind::kMismatch)
    return "made another collective call than the other ranks";
  if (error && error->kind == process::RankErrorKind::kAborted) return "ended the job";
  return "stopped responding";
}

bool lost_together(const job::LaunchJob& job, const job::JobResult& result, int one, int other) {
  const job::RankState &a = result.ranks[one], &b = result.ranks[other];
  if (a.lost.empty() || b.lost.empty() || a.transport_lost != b.transport_lost) return false;
  return a.transport_lost || job.host_of_rank[one] == job.host_of_rank[other];
}

// All ranks that were lost together with `rank`, with `rank` itself.
std::vector<int> lost_beside(const job::LaunchJob& job, const job::JobResult& result, int rank) {
  std::vector<int> ranks;
  for (int other = 0; other < static_cast<int>(result.ranks.size()); ++other) {
    if (lost_together(job, result, rank, other)) ranks.push_back(other);
  }
  return ranks;
}

}  // namespace

std::string cause_line(const job::LaunchJob& job, const job::JobResult& result) {
  const int rank = result.cause->rank;
  const job::RankState& state = result.ranks[rank];
  if (state.lost.empty()) return fmt::format("{} {}", text_of_rank(job, rank), cause_text(result));
  const std::string what = state.transport_lost
                               ? "the connection to all hosts"
                               : fmt::format("host {}", job.hosts[job.host_of_rank[rank]]);
  return fmt::format("{} was lost with {}, {} after the start: {}", what,
                     hosts::text_of_ranks(lost_beside(job, result, rank)),
                     hosts::duration_text(state.after), state.lost);
}

namespace {

// "process 4711, local rank 2, at step 312: forward, layer 7"
std::string place_of(const job::LaunchJob& job, const job::JobResult& result, int rank) {
  const job::RankState& state = result.ranks[rank];
  std::string text =
      fmt::format("local rank {}", job::local_ranks_of(job)[static_cast<size_t>(rank)]);
  if (state.end.pid != 0) text = fmt::format("process {}, {}", state.end.pid, text);
  if (state.progress) text += ", at " + job::text_of(*state.progress, state.stopped);
  return text;
}

std::string evidence_text(const job::LaunchJob& job, const job::JobResult& result) {
  const job::Cause& cause = *result.cause;
  const job::RankState& state = result.ranks[cause.rank];
  std::string text;
  if (state.lost.empty()) text = fmt::format("  {}\n", place_of(job, result, cause.rank));
  const auto quote = [&](int rank) {
    const auto& error = result.ranks[rank].error;
    if (error) text += fmt::format("  rank {} said:\n", rank) + indented(words_of(*error), "    ");
  };
  quote(cause.witness);
  const std::string& log = job.files[cause.rank].err_log;
  const std::string where = log.empty() ? "" : " (" + log + ")";
  if (!state.lost.empty() && result.last_lines.empty()) return text;
  if (result.last_lines.empty()) {
    text += fmt::format("  rank {} wrote nothing to its standard error{}\n", cause.rank, where);
  } else {
    text += fmt::format("  last lines of its standard error{}:\n", where);
    for (const std::string& line : result.last_lines) text += "    " + line + "\n";
  }
  if (job::failed_because_of_peer(state))
    text +=
        "  these lines report a lost connection to another rank, but no other rank is known to "
        "have failed\n";
  if (state.failed_by_itself() && !state.end.gpu_errors.empty()) {
    text += "  GPU errors in the kernel log of its host:\n";
    for (const std::string& error : state.end.gpu_errors) text += "    " + error + "\n";
  }
  if (state.failed_by_itself() && state.end.out_of_memory)
    text += fmt::format(
        "  its control group{} or its host ran out of memory (see dmesg): use smaller batches, or "
        "allow more memory\n",
        state.end.memory_limit_bytes == 0
            ? ""
            : fmt::format(" ({})", health::text_of_bytes(state.end.memory_limit_bytes)));
  else if (state.failed_by_itself() && state.end.signal == SIGKILL)
    text +=
        "  SIGKILL came from a user, from a batch system, or from the kernel because memory ran "
        "out (see dmesg)\n";
  return text;
}

std::string consequence_of(const job::JobResult& result, const job::RankState& state) {
  if (!state.ended && state.not_permitted)
    return "did not end: its process has changed its user (setuid, sudo), so smp-launch has no "
           "permission to signal it";
  if (!state.ended) return "did not end after SIGKILL: hung inside the kernel";
  if (!state.lost.empty()) return text_of_loss(state);
  if (state.ended_by_launcher && state.end.signal == SIGKILL && result.killed_after)
    return fmt::format("killed by smp-launch, {} after the request to end",
                       hosts::duration_text(*result.killed_after));
  if (state.ended_by_launcher && state.end.signal == SIGKILL)
    return text_of(state.end) + " while smp-launch ended the job";
  if (state.ended_by_launcher) return "ended by smp-launch";
  if (!state.end.failed()) return "had ended with exit code 0";
  if (!state.error)
    return text_of(state.end) +
           (job::failed_because_of_peer(state) ? ": connection to another rank lost" : "");
  if (state.error->kind == process::RankErrorKind::kAborted)
    return fmt::format("{} because rank {} aborted the job", text_of(state.end),
                       state.error->culprit);
  const std::string words = words_of(*state.error);
  return fmt::format("{}: {}", text_of(state.end), first_line(words));
}

std::string consequences_text(const job::LaunchJob& job, const job::JobResult& result) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<int>> ranks;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    if (result.cause && static_cast<int>(rank) == result.cause->rank) continue;
    if (result.cause && lost_together(job, result, result.cause->rank, static_cast<int>(rank)))
      continue;  // named in the cause
    const std::string what = consequence_of(result, result.ranks[rank]);
    if (ranks[what].empty()) order.push_back(what);
    ranks[what].push_back(static_cast<int>(rank));
  }
  std::string text;
  for (size_t i = 0; i < order.size() && i < kListedConsequences; ++i)
    text += fmt::format("  consequence: {} {}\n", hosts::text_of_ranks(ranks[order[i]]), order[i]);
  if (order.size() > kListedConsequences)
    text += fmt::format("  and {} other consequences\n", order.size() - kListedConsequences);
  return text;
}

}  // namespace

std::string text_of_loss(const job::RankState& state) {
  return fmt::format("lost with {}its host: {}", state.transport_lost ? "the connection to " : "",
                     state.lost);
}

std::string text_of_rank(const job::LaunchJob& job, int rank) {
  if (job.hosts.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} on host {}", rank, job.hosts[job.host_of_rank[rank]]);
}

std::string one_line_cause(const job::LaunchJob& job, const job::JobResult& result) {
  switch (result.end) {
    case job::JobEnd::kSuccess:
    case job::JobEnd::kCheckpointed: return "";
    case job::JobEnd::kRankFailed: return cause_line(job, result);
    case job::JobEnd::kHang: return std::string(first_line(job::text_of(*result.hang)));
    case job::JobEnd::kTimeout:
      return fmt::format("the job had not ended after {} (--timeout)",
                         hosts::duration_text(result.timeout));
    case job::JobEnd::kInterrupted:
      return fmt::format("interrupted by {}", process::signal_name(result.interrupted_by));
    case job::JobEnd::kHostsUnreachable:
    case job::JobEnd::kLauncherError: return std::string(first_line(result.launcher_error));
  }
  return "";
}

std::string report_text(const job::LaunchJob& job, const job::JobResult& result) {
  std::string text;
  switch (result.end) {
    case job::JobEnd::kSuccess: break;
    case job::JobEnd::kRankFailed:
      text = fmt::format("smp-launch: {}\n", cause_line(job, result)) + evidence_text(job, result) +
             consequences_text(job, result);
      if (result.unsaved_for != 0)
        text += fmt::format(
            "  {} asked for a checkpoint, but the job failed: the checkpoint is possibly not "
            "saved\n",
            process::signal_name(result.unsaved_for));
      break;
    case job::JobEnd::kTimeout:
      text = fmt::format("smp-launch: the job had not ended after {} (--timeout)\n",
                         hosts::duration_text(result.timeout)) +
             consequences_text(job, result);
      break;
    case job::JobEnd::kHang:
      text = fmt::format("smp-launch: {}\n", job::text_of(*result.hang)) +
             consequences_text(job, result);
      break;
    case job::JobEnd::kInterrupted:
      text = fmt::format("smp-launch: interrupted by {}\n",
                         process::signal_name(result.interrupted_by)) +
             consequences_text(job, result);
      break;
    case job::JobEnd::kHostsUnreachable:
    case job::JobEnd::kLauncherError:
      text = fmt::format("smp-launch: {}\n", result.launcher_error);
      break;
    case job::JobEnd::kCheckpointed:
      return fmt::format("smp-launch: {} ended on request; {}; exit code {}\n",
                         !result.ranks.empty() ? "saved a checkpoint and"
                         : result.goes_on
                             ? "no rank was running, so the last checkpoint is complete;"
                             : "no rank had started;",
                         result.goes_on ? "resume with --resume" : "start the job again",
                         result.exit_code) +
             (job.requeue.empty()
                  ? ""
                  : fmt::format("smp-launch: to start the job again: {}\n", job.requeue));
  }
  // Not after a failure, which usually leaves processes behind.
  if (result.end == job::JobEnd::kSuccess && result.left_behind > 0)
    text += fmt::format("smp-launch: killed {} process{} that the ranks had left behind\n",
                        result.left_behind, result.left_behind == 1 ? "" : "es");
  if (result.not_ended > 0)
    text += fmt::format(
        "smp-launch: could not end {} process{} of the ranks: hung inside the kernel, or changed "
        "to another user\n",
        result.not_ended, result.not_ended == 1 ? "" : "es");
  // If one rank could not be started, other ranks may not have been started either.
  const bool all_ran = result.end != job::JobEnd::kLauncherError;
  const auto ended =
      static_cast<size_t>(std::count_if(result.ranks.begin(), result.ranks.end(),
                                        [](const job::RankState& state) { return state.ended; }));
  if (result.end != job::JobEnd::kSuccess && !result.ranks.empty())
    text += fmt::format("smp-launch: {}{} rank{} ended in {}; exit code {}\n",
                        all_ran && ended < result.ranks.size() ? fmt::format("{} of ", ended) : "",
                        result.ranks.size(), result.ranks.size() == 1 ? "" : "s",
                        hosts::duration_text(result.ending), result.exit_code);
  return text;
}

}  // namespace smp::supervision
