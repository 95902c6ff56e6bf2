#include "smp/launcher/schedulers/sagemaker_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "smp/launcher/environment/variables.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/json.h"

namespace smp::schedulers {
namespace {

std::vector<std::string> texts_in(const text::Json& list, const std::string& where) {
  std::vector<std::string> texts;
  if (list.is_array()) {
    for (const auto& one : list) {
      if (one.is_string()) texts.push_back(one.get<std::string>());
    }
  }
  if (texts.empty() || texts.size() != list.size())
    throw ConfigError(fmt::format("{}: the hosts are not a list of names", where));
  return texts;
}

std::string text_in(const text::Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string sagemaker_folder(const std::vector<std::string>& environment) {
  return environment::value_in(environment, "SMP_SAGEMAKER_FOLDER").value_or("/opt/ml");
}

SageMakerJob sagemaker_job(const std::vector<std::string>& environment) {
  SageMakerJob job;
  std::string where, current;
  try {
    if (const auto hosts = environment::value_in(environment, "SM_HOSTS")) {
      where = "SM_HOSTS";
      job.hosts = texts_in(text::Json::parse(*hosts), where);
      current = environment::value_in(environment, "SM_CURRENT_HOST").value_or("");
      job.interface = environment::value_in(environment, "SM_NETWORK_INTERFACE_NAME").value_or("");
    } else {
      where = sagemaker_folder(environment) + "/input/config/resourceconfig.json";
      if (!std::filesystem::exists(where))
        throw ConfigError(fmt::format(
            "this is not a training job of SageMaker: SM_HOSTS is not set, and '{}' does not exist",
            where));
      const auto config = text::Json::parse(files::read_text_file(where, "resource configuration"));
      if (!config.is_object() || !config.contains("hosts"))
        throw ConfigError(fmt::format("{}: the hosts are not a list of names", where));
      job.hosts = texts_in(config["hosts"], where);
      current = text_in(config, "current_host");
      job.interface = text_in(config, "network_interface_name");
    }
  } catch (const text::Json::exception&) {
    throw ConfigError(fmt::format("{}: not JSON", where));
  }
  if (environment::value_in(environment, "SM_NUM_GPUS"))
    job.gpus = environment::number_in(environment, "SM_NUM_GPUS", 0, hosts::kMostSlots);
  std::sort(job.hosts.begin(), job.hosts.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);  // algo-2 before algo-10
  });
  const auto found = std::find(job.hosts.begin(), job.hosts.end(), current);
  if (found == job.hosts.end())
    throw ConfigError(fmt::format("{}: the current host '{}' is not one of {}", where, current,
                                  fmt::join(job.hosts, ", ")));
  job.current = static_cast<int>(found - job.hosts.begin());
  return job;
}

}  // namespace smp::schedulers
