#include "smp/launcher/schedulers/sagemaker_job.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>

#include "scratch_folder.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::schedulers;

TEST_CASE("SageMaker's hosts come from its variables, or from its file") {
  const SageMakerJob job =
      sagemaker_job({"SM_HOSTS=[\"algo-10\",\"algo-2\",\"algo-1\"]", "SM_CURRENT_HOST=algo-2",
                     "SM_NUM_GPUS=8", "SM_NETWORK_INTERFACE_NAME=eth0"});
  CHECK(job.hosts == std::vector<std::string>{"algo-1", "algo-2", "algo-10"});
  CHECK(job.current == 1);
  CHECK(job.gpus == 8);
  CHECK(job.interface == "eth0");

  const ScratchFolder folder;
  const std::string setting = "SMP_SAGEMAKER_FOLDER=" + folder.path();
  const std::string file = folder / "input/config/resourceconfig.json";
  CHECK_THROWS_WITH_AS(sagemaker_job({setting}),
                       ("this is not a training job of SageMaker: SM_HOSTS is not set, and '" +
                        file + "' does not exist")
                           .c_str(),
                       ConfigError);
  mkdir((folder / "input").c_str(), 0755);
  mkdir((folder / "input/config").c_str(), 0755);
  std::ofstream(file) << R"({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"],
                            "network_interface_name": "eth1"})";
  CHECK(sagemaker_job({setting}).hosts.size() == 2);
  CHECK(sagemaker_job({setting}).interface == "eth1");
  std::ofstream(file) << "{";
  CHECK_THROWS_WITH_AS(sagemaker_job({setting}), (file + ": not JSON").c_str(), ConfigError);
  std::ofstream(file) << R"({"hosts": [1]})";
  CHECK_THROWS_WITH_AS(sagemaker_job({setting}),
                       (file + ": the hosts are not a list of names").c_str(), ConfigError);
  CHECK_THROWS_WITH_AS(sagemaker_job({"SM_HOSTS=[\"a\"]", "SM_CURRENT_HOST=b"}),
                       "SM_HOSTS: the current host 'b' is not one of a", ConfigError);
}
