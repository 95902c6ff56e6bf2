#pragma once

#include <string>

#include "smp/launcher/request/prepared_job.h"

namespace smp::schedulers {

// Manifests of a job for Kubernetes: YAML for kubectl create -f. The image has smp-launch in its
// PATH, and the job's files at the paths that the user names. Throw ConfigError for a name that the
// cluster would refuse.

// MPIJob of the MPI operator (kubeflow.org/v2beta1): it makes the workers and their sshd;
// smp-launch in the launcher's pod reaches them.
std::string mpijob_manifest(const request::PreparedJob& job);

// JobSet (jobset.x-k8s.io/v1alpha2): one pod a host, smp-launch in each as in a start by hand.
std::string jobset_manifest(const request::PreparedJob& job);

// TrainJob of Kubeflow's trainer (trainer.kubeflow.org/v1alpha1), with a TrainingRuntime: one pod a
// host, as above.
std::string trainjob_manifest(const request::PreparedJob& job);

// LeaderWorkerSet (leaderworkerset.x-k8s.io/v1): one group with one pod a host, as above.
std::string lws_manifest(const request::PreparedJob& job);

}  // namespace smp::schedulers
