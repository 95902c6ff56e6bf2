#pragma once

#include <string>

#include "smp/launcher/request/prepared_job.h"

namespace smp::schedulers {

// What Kubernetes does when pods of a job fail, as keys of its objects, each line indented by so
// many spaces. No pod is made again alone, as its ranks would find no others: the job's pods are
// all made again, or the job has failed.

// How often all pods are made again at most: --max-restarts, where it is the cluster's.
int pod_restarts(const request::PreparedJob& job);

// failurePolicy of a JobSet.
std::string jobset_failures(const request::PreparedJob& job, int indent);

// backoffLimit of its Job and, for a job that goes on from its last checkpoint, podFailurePolicy.
// `container`: that of the ranks.
std::string job_failures(const request::PreparedJob& job, const std::string& container, int indent);

}  // namespace smp::schedulers
