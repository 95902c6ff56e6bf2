#pragma once

#include <string>
#include <vector>

#include "smp/plan/jobfile/job_source.h"
#include "smp/plan/spec/job_spec.h"

// Reads job files (YAML) into a JobSpec, strictly. A key that is unknown, duplicate, missing,
// mistyped or contradictory is an error with file, line, column, the line and a caret. All errors
// come at once, sorted by place. The keys are in docs/job-file.md. Functions without state; safe
// from any thread.
namespace smp::jobfile {

// Several sources are one job: a later one overrides the earlier ones key by key (a model file,
// then a cluster file). `overrides` are "section.key=value" and come last; of two for one key the
// last counts. After reading, defaults that follow from other keys are filled in.
// `parallel.sharding` then combines sharding, shard_optimizer_state and
// sharded_data_parallel_degree. Throws ConfigError with the text of all errors.
JobSpec read_job(const std::vector<JobSource>& sources,
                 const std::vector<std::string>& overrides = {});

}  // namespace smp::jobfile
