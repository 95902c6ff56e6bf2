#pragma once

#include <string>

#include "smp/launcher/request/prepared_job.h"

namespace smp::schedulers {

// Failure policies of Kubernetes objects, as YAML lines with the given indent. A pod is never made
// again alone, since its ranks would find no peers. Either all pods of a job are made again, or the
// job has failed.

// How often all pods may be made again: --max-restarts if the cluster restarts them, else 0.
int pod_restarts(const request::PreparedJob& job);

// The failurePolicy of a JobSet.
std::string jobset_failures(const request::PreparedJob& job, int indent);

// backoffLimit of its Job and, for a job that goes on from its last checkpoint, podFailurePolicy.
// `container`: that of the ranks.
std::string job_failures(const request::PreparedJob& job, const std::string& container, int indent);

}  // namespace smp::schedulers
