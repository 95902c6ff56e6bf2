#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "local_rates.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/calibration/scale_run.h"
#include "smp/planner/report/report.h"
#include "smp/planner/search/search_result.h"

namespace smp {

// What `smp-plan job.yaml ...` is asked.
struct PlanRequest {
  std::string job;
  std::vector<std::string> clusters;
  int64_t hosts = 0;
  std::vector<std::string> overrides;
  std::string output;
  bool json = false;
  std::string html;    // a file
  bool plain = false;  // neither colour nor folding
  int64_t width = 0;   // columns; 0 = the terminal's
  std::string strategy = "fastest";
  bool pareto = false;
  std::vector<std::string> what_if;  // "section.key=a,b,c"
  std::string solve;                 // a quantity
  double step_s = 0;
  std::string from;  // report.json of a run, its plan.yaml beside it
  bool no_measure = false;
  std::shared_ptr<LocalRates> local;  // set when the command runs
  report::ReportOptions report;
};

// The job of the request on one of its clusters (empty = the job's own), `more` overriding last.
JobSpec read_request(const PlanRequest& request, const std::string& cluster,
                     const std::vector<std::string>& more = {});
search::SearchOptions search_options(const PlanRequest& request);

// Several clusters, ranked; the tables of --what-if; --solve. Each prints its answer.
ExitCode rank_clusters(const PlanRequest& request);
ExitCode print_what_if(const PlanRequest& request);
ExitCode print_solution(const PlanRequest& request);
// The predictions of `plan` under the errors of the run that --from names.
calibration::ScaledRun scaled_from(const PlanRequest& request, const Plan& plan);

}  // namespace smp
