#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

// What other launchers say to the processes that they start, smp-launch among them.
namespace smp::environment {

// The value of a variable in "NAME=value" texts; nothing where it is not set.
std::optional<std::string> value_in(const std::vector<std::string>& environment,
                                    const std::string& name);

// The whole number from `least` to `most` that is the value of a variable. Throws ConfigError, also
// where it is not set.
int number_in(const std::vector<std::string>& environment, const char* name, int least,
              int most = std::numeric_limits<int>::max());

// The place of this process among those that mpirun or mpiexec has started.
struct OuterRank {
  int rank = 0, size = 1;              // among all
  int local_rank = 0, local_size = 1;  // among those of this host
};

// Of Open MPI (OMPI_COMM_WORLD_*) or MPICH (PMI_*, MPI_LOCAL*). Nothing where neither has started
// this process. Throws ConfigError for values that make no sense.
std::optional<OuterRank> rank_in_mpi(const std::vector<std::string>& environment);

// Takes what they say out of this process's environment, so that the ranks do not take it for
// themselves, and the binding to a core that they give each of their processes.
void leave_mpi();

// What SageMaker says of a training job's hosts: SM_* variables, or resourceconfig.json.
struct SageMakerJob {
  std::vector<std::string> hosts;  // in order
  int current = 0;                 // this one, among them
  int gpus = 0;                    // of each
  std::string interface;           // network between them; empty: not said
};

// The folder that SageMaker shares with a container: /opt/ml, or SMP_SAGEMAKER_FOLDER.
std::string sagemaker_folder(const std::vector<std::string>& environment);

// Throws ConfigError where there is no such job, or what it says makes no sense.
SageMakerJob sagemaker_job(const std::vector<std::string>& environment);

}  // namespace smp::environment
