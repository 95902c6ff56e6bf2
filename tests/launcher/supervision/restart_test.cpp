#include "smp/launcher/supervision/restart.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include "smp/launcher/supervision/report.h"

using namespace smp;
using namespace smp::job;
using namespace smp::process;
using namespace smp::runinfo;
using namespace smp::supervision;
using std::chrono::milliseconds;

namespace {

Start failed_at(int64_t step) {
  Start start;
  start.end = JobEnd::kRankFailed;
  start.exit_code = 137;
  start.cause = "rank 2 was killed by SIGKILL (Killed)";
  start.failed_step = step;
  return start;
}

RestartRules rules(int most) { return {most, milliseconds(1000)}; }

}  // namespace

TEST_CASE("a failed job is started again, after longer and longer pauses, as often as wanted") {
  std::vector<Start> starts;
  for (int64_t pause : {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000}) {
    starts.push_back(failed_at(static_cast<int64_t>(starts.size()) + 5));
    const RestartDecision decision = decide_restart(rules(8), starts, true);
    CHECK(decision.again);
    CHECK(decision.pause == milliseconds(pause));
  }
  starts.push_back(failed_at(99));
  const RestartDecision last = decide_restart(rules(8), starts, true);
  CHECK(!last.again);
  CHECK(last.why_not == "8 restarts were made (--max-restarts)");
  CHECK(decide_restart(rules(1), {failed_at(1), failed_at(2)}, true).why_not ==
        "1 restart was made (--max-restarts)");
}

TEST_CASE("what would fail again is not started again") {
  CHECK(decide_restart(rules(9), {failed_at(7), failed_at(7)}, true).why_not ==
        "two starts in a row failed at step 7");
  CHECK(decide_restart(rules(9), {failed_at(0), failed_at(0)}, true).why_not ==
        "two starts in a row failed before the first step");
  CHECK(decide_restart(rules(9), {failed_at(7), failed_at(8)}, true).again);
  CHECK(decide_restart(rules(9), {failed_at(7), failed_at(8), failed_at(7)}, true).again);
  std::vector<Start> lost = {failed_at(7), failed_at(7)};
  lost.back().lost_host = true;
  CHECK(decide_restart(rules(9), lost, true).again);
  Start unknown = failed_at(0);
  unknown.failed_step.reset();
  CHECK(decide_restart(rules(9), {unknown, unknown}, false).again);
  Start config = failed_at(0);
  config.exit_code = 3;
  CHECK(decide_restart(rules(9), {config}, true).why_not ==
        "the error is in the job's configuration, so a restart would fail too");
  CHECK(decide_restart(rules(9), {config}, false).again);
  // A network's file that is gone for a second: the job was right when it trained.
  CHECK(decide_restart(rules(9), {failed_at(7), config}, true).again);
  CHECK(decide_restart(rules(9), {failed_at(7), config, config}, true).why_not ==
        "two starts in a row failed before the first step");
  CHECK(decide_restart(rules(9), {failed_at(0), config}, true).why_not ==
        "the error is in the job's configuration, so a restart would fail too");
}

TEST_CASE("an end that is no failure of ranks or hosts starts nothing again, without a word") {
  for (const JobEnd end :
       {JobEnd::kSuccess, JobEnd::kTimeout, JobEnd::kInterrupted, JobEnd::kLauncherError,
        JobEnd::kCheckpointed, JobEnd::kHostsUnreachable}) {
    Start start;
    start.end = end;
    CHECK(!decide_restart(rules(9), {start}, true).again);
    CHECK(decide_restart(rules(9), {start}, true).why_not == "");
  }
  CHECK(!decide_restart(rules(0), {failed_at(1)}, true).again);
  CHECK(decide_restart(rules(0), {failed_at(1)}, true).why_not == "");
  Start hang = failed_at(3);
  hang.end = JobEnd::kHang;
  CHECK(decide_restart(rules(1), {hang}, true).again);
  Start unreachable;
  unreachable.end = JobEnd::kHostsUnreachable;
  CHECK(decide_restart(rules(9), {failed_at(3), unreachable}, true).again);
}

TEST_CASE("each start is told with its cause and its step") {
  LaunchJob job;
  job.commands.resize(2);
  job.files.resize(2);
  JobResult result;
  result.end = JobEnd::kRankFailed;
  result.exit_code = 137;
  result.elapsed = milliseconds(2500);
  result.ranks.resize(2);
  result.ranks[1].ended = true;
  result.ranks[1].end = {0, SIGKILL, false};
  result.ranks[1].after = milliseconds(2400);
  RankProgress progress;
  progress.step = 7;
  result.ranks[1].progress = progress;
  result.cause = find_cause(result.ranks);
  const Start start = start_of(job, result, "step-5");
  CHECK(text_of(start, 1) ==
        "start 1 (from step-5) failed after 2.5 s, at step 7: rank 1 was killed by SIGKILL "
        "(Killed), 2.4 s after the start");
  CHECK(!start.lost_host);
  const std::string json = report_json(job, result, {start, start});
  CHECK(json.find("\"starts\": [") != json.npos);
  CHECK(json.find("\"from\": \"step-5\"") != json.npos);
  CHECK(json.find("\"step\": 7") != json.npos);
  CHECK(report_json(job, result, {start}).find("starts") == json.npos);
}
