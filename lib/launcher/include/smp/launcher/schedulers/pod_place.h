#pragma once

#include <string>
#include <vector>

namespace smp::schedulers {

// The place of this process's pod among those of its job on Kubernetes, by what the job's operator
// says to it. What is not said is 0, or empty.
struct PodPlace {
  std::string source;  // the variable, or file, that says it
  std::string
      host_file;  // of an MPIJob's launcher, which reaches the others by ssh: no more is said
  int pods = 0;
  int node_rank = 0;
  int ranks = 0;       // of each pod
  std::string leader;  // the name of the pod that leads
  int port = 0;
};

// Reads what the operator of the pod's job sets:
//   MPIJob               the host file of OMPI_MCA_orte_default_hostfile, I_MPI_HYDRA_HOST_FILE or
//                        HYDRA_HOST_FILE, else `mpi_host_file` if it is there
//   TrainJob             PET_*
//   LeaderWorkerSet      LWS_*
//   JobSet, indexed job  JOB_COMPLETION_INDEX, and `own_name`: this pod's name with its domain,
//                        whose last number is that index
// Throws ConfigError where there is none of these, or they do not agree.
PodPlace pod_place(const std::vector<std::string>& environment, const std::string& own_name,
                   const std::string& mpi_host_file);

// This host's name with its domain, as the resolver knows it; without, where it knows none.
std::string own_full_name();

}  // namespace smp::schedulers
