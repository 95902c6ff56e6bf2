#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/calibration/host_rates.h"

namespace smp {

// The rates of clusters that are named `local`: this host, by its name. They are measured once, by
// smp-bench beside this program, and stored in the user's cache ($XDG_CACHE_HOME or ~/.cache, in
// smp/). One object a command; not thread-safe.
class LocalRates {
 public:
  // Not `measures`: the job's own numbers stay, as with SMP_NO_MEASURE in the environment.
  explicit LocalRates(bool measures = true);

  // Sets the rates of a job on such a cluster, but for those that `overrides` ("section.key=value")
  // set. Says on standard error what was measured, or why the job's own numbers stay.
  void apply(JobSpec& job, const std::vector<std::string>& overrides);

  // Which numbers the last such job has: a reason for its plan; "" of a job on another cluster.
  const std::string& reason() const { return reason_; }

 private:
  const calibration::HostMeasurement* measurement();

  const bool measures_;
  bool is_known_ = false;  // measured, read, or found impossible
  std::optional<calibration::HostMeasurement> measurement_;
  std::string origin_;  // "measured on 2026-11-29, AMD EPYC, 2 CPUs", or why not
  std::string reason_;
};

}  // namespace smp
