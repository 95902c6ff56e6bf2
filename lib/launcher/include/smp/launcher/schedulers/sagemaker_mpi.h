#pragma once

#include <string>
#include <vector>

namespace smp::schedulers {

// What the SDK's distribution={"mpi": {...}} says of a training job, by its hyperparameters
// sagemaker_mpi_enabled, sagemaker_mpi_num_of_processes_per_host and
// sagemaker_mpi_custom_mpi_options. Without it, or not enabled, all of it is empty.
struct SageMakerMpi {
  int processes_per_host = 0;          // 0: not said
  std::vector<std::string> variables;  // for the ranks, of -x: "NAME=value" or "NAME"
  std::vector<std::string> dropped;    // options that mean something to MPI's own libraries alone
};

// From `folder`/input/config/hyperparameters.json; nothing where that is not there. Throws
// ConfigError, also for an option of mpirun that smp-launch would have to follow and cannot.
SageMakerMpi sagemaker_mpi(const std::string& folder);

// The same of the texts that stand there.
SageMakerMpi parse_sagemaker_mpi(const std::string& file, const std::string& text);

}  // namespace smp::schedulers
