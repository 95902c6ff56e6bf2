#pragma once

#include <string>

#include "smp/launcher/job.h"

namespace smp {

// The folder of one run: plan.yaml, metrics.jsonl, usage.jsonl, report.json, weights/, checkpoints/
// (written by others), logs/rank-<r>.out and .err, logs/algo-<host, from 1>.log,
// errors/rank-<r>.json.
class RunFolder {
 public:
  // The folder as it would be, absolute; creates nothing.
  explicit RunFolder(const std::string& path);
  // Creates it with its parents. Throws ConfigError if it exists and is not empty, or cannot be
  // created or written.
  static RunFolder create(const std::string& path);
  // One that a run was in, with a checkpoint to go on from; what its ranks said last is removed.
  // Throws ConfigError when it is not there, or holds none.
  static RunFolder reopen(const std::string& path);
  // One that a run may have been in, with or without a checkpoint; else as create(). Throws
  // ConfigError when it holds something else.
  static RunFolder go_on(const std::string& path);
  static std::string why_not_go_on(const std::string& path);
  // For another start of the same run: what its ranks said last is removed.
  void begin_again() const;
  // Its name; empty where there is none. Throws ConfigError when that cannot be told.
  std::string latest_checkpoint() const;
  // The same for a plan. Returns the name of the checkpoint to go on from; empty: there is none,
  // and what was measured before is removed, too.
  std::string begin_plan_again() const;
  // "runs/<job>-<UTC yyyymmddThhmmssZ>", with "-2", "-3" behind it while that name is taken.
  static std::string default_path(const std::string& job);
  // Why create() would fail, in its words; empty if it would not. Changes nothing.
  static std::string why_not(const std::string& path);
  static std::string why_not_reopen(const std::string& path);

  const std::string& path() const { return path_; }
  std::string plan() const { return path_ + "/plan.yaml"; }
  std::string status() const { return path_ + "/status.json"; }
  std::string usage() const { return path_ + "/usage.jsonl"; }
  std::string events() const { return path_ + "/events.jsonl"; }
  RankFiles files_of(int rank) const;
  std::string log(const std::string& name) const { return path_ + "/logs/" + name; }
  std::string host_log(int host) const;  // named as SageMaker names hosts

 private:
  void make_parts() const;

  std::string path_;  // absolute
};

}  // namespace smp
