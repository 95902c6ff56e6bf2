#pragma once

#include <string>

#include "local_rates.h"
#include "smp/interchange/importers/job_of_files.h"
#include "smp/planner/report/checked_file.h"

namespace smp {

// What smp-plan check says of a file: a job, which is planned, or a plan. The plan is proved.
// `more` as in read_plannable().
report::CheckedFile checked_file(const std::string& path, const importers::AnyFiles& more,
                                 const report::VerdictOptions& options, LocalRates& local);

}  // namespace smp
