#pragma once

#include <string>

#include "smp/launcher/request/prepared_job.h"

namespace smp::schedulers {

// The job as an object of Kubernetes, YAML for kubectl create -f. The image holds smp-launch in its
// PATH and the job's files at the paths that they are named by. Throw ConfigError for a name that
// the cluster would refuse.

// MPIJob of the MPI operator (kubeflow.org/v2beta1): it makes the workers and their sshd;
// smp-launch in the launcher's pod reaches them.
std::string mpijob_manifest(const request::PreparedJob& job);

// JobSet (jobset.x-k8s.io/v1alpha2): one pod a host, smp-launch in each as in a start by hand.
std::string jobset_manifest(const request::PreparedJob& job);

// TrainJob of Kubeflow's trainer (trainer.kubeflow.org/v1alpha1), on its runtime torch-distributed:
// the same.
std::string trainjob_manifest(const request::PreparedJob& job);

// LeaderWorkerSet (leaderworkerset.x-k8s.io/v1): one group of as many pods as hosts, the same.
std::string lws_manifest(const request::PreparedJob& job);

}  // namespace smp::schedulers
