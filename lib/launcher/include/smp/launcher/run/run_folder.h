#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "smp/launcher/job/job.h"
#include "smp/launcher/run/run_lock.h"

namespace smp::run {

// The folder of one run: plan.yaml, metrics.jsonl, usage.jsonl, report.json, weights/, checkpoints/
// (written by others), logs/rank-<r>.out and .err, logs/algo-<host, from 1>.log,
// errors/rank-<r>.json; and `lock` while somebody uses it. Nothing that is there changes before the
// ranks start, and nothing of the run itself before they are ready: until then the plan lies beside
// the run's own (kPlanToStart). A folder in which no rank has started is as it was, when the last
// copy goes.
class RunFolder {
 public:
  // The folder as it would be, absolute; creates nothing.
  explicit RunFolder(const std::string& path);
  // Creates it with its parents, and locks it. Throws ConfigError if a run has begun there, it
  // holds something else, cannot be created or written, or is in use.
  static RunFolder create(const std::string& path);
  // "runs/<job>-<UTC yyyymmddThhmmssZ>", with "-2", "-3" behind it while somebody has that name.
  static RunFolder create_for(const std::string& job);
  // Locks one that a run was in, with a checkpoint to go on from. Throws ConfigError when it is not
  // there, holds none, or is in use.
  static RunFolder reopen(const std::string& path);
  // One that a run may have been in, with or without a checkpoint; else as create(). Throws
  // ConfigError when it holds something else.
  static RunFolder go_on(const std::string& path);

  // Why these would fail, in their words; empty if they would not. They change nothing.
  static std::string why_not(const std::string& path);
  static std::string why_not_reopen(const std::string& path);
  static std::string why_not_go_on(const std::string& path);

  // Of a plan, to start with. Throws ConfigError.
  void lay_plan(const std::string& from) const;
  // For a start of ranks: they find their folders, and nothing of what the last ones said. Throws
  // ConfigError; so where the folder was moved away from under this process.
  void begin_start() const;
  // The name of the checkpoint to go on from; empty: there is none. Throws ConfigError when that
  // cannot be told, or the folder was moved away from under this process.
  std::string checkpoint() const;
  // What its user should know of the lock; empty: nothing.
  std::string note() const;

  const std::string& path() const { return path_; }
  std::string plan() const;           // of the run
  std::string plan_to_start() const;  // that the ranks read
  std::string status() const { return path_ + "/status.json"; }
  std::string usage() const { return path_ + "/usage.jsonl"; }
  std::string events() const { return path_ + "/events.jsonl"; }
  job::RankFiles files_of(int rank) const;
  std::string log(const std::string& name) const { return path_ + "/logs/" + name; }
  std::string host_log(int host) const;  // named as SageMaker names hosts

 private:
  // What this process holds while it uses the folder, and gives back.
  struct Hold;

  void hold(std::vector<std::string> made);
  // Where it went that was moved or removed under this process; empty: it is in its place.
  std::string why_lost() const;

  std::string path_;  // absolute
  std::shared_ptr<Hold> hold_;
};

}  // namespace smp::run
