#pragma once

#include <string>
#include <vector>

namespace smp::schedulers {

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

}  // namespace smp::schedulers
