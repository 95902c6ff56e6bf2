#include "smp/launcher/environment/outer_launcher.h"

#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/json.h"

namespace smp::environment {
namespace {

struct Names {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr std::array<Names, 2> kMpi = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
}};
constexpr std::array kOfMpi = {"OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL", "HYDI_", "HYDRA_"};

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

std::optional<std::string> value_in(const std::vector<std::string>& environment,
                                    const std::string& name) {
  for (const std::string& variable : environment) {
    if (variable.starts_with(name) && variable.size() > name.size() && variable[name.size()] == '=')
      return variable.substr(name.size() + 1);
  }
  return std::nullopt;
}

int number_in(const std::vector<std::string>& environment, const char* name, int least, int most) {
  const std::optional<std::string> text = value_in(environment, name);
  if (!text) throw ConfigError(fmt::format("{} is not set, though others of its kind are", name));
  int number = 0;
  const char* last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, number);
  if (error != std::errc{} || end != last || number < least)
    throw ConfigError(fmt::format("{}='{}' is not a number as it should be", name, *text));
  if (number > most)
    throw ConfigError(fmt::format("{}='{}' is more than {}, the most here", name, *text, most));
  return number;
}

std::optional<OuterRank> rank_in_mpi(const std::vector<std::string>& environment) {
  for (const Names& names : kMpi) {
    if (!value_in(environment, names.rank)) continue;
    const OuterRank outer{
        number_in(environment, names.rank, 0), number_in(environment, names.size, 1),
        number_in(environment, names.local_rank, 0), number_in(environment, names.local_size, 1)};
    if (outer.rank >= outer.size || outer.local_rank >= outer.local_size)
      throw ConfigError(fmt::format("{}={} of {}, {}={} of {}: there is no such rank", names.rank,
                                    outer.rank, outer.size, names.local_rank, outer.local_rank,
                                    outer.local_size));
    return outer;
  }
  return std::nullopt;
}

void leave_mpi() {
  for (const std::string& variable : own_environment()) {
    for (const char* prefix : kOfMpi) {
      if (variable.starts_with(prefix)) unsetenv(variable.substr(0, variable.find('=')).c_str());
    }
  }
  // The kernel takes out what this process may not run on.
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  sched_setaffinity(0, sizeof all, &all);
}

std::string sagemaker_folder(const std::vector<std::string>& environment) {
  return value_in(environment, "SMP_SAGEMAKER_FOLDER").value_or("/opt/ml");
}

SageMakerJob sagemaker_job(const std::vector<std::string>& environment) {
  SageMakerJob job;
  std::string where, current;
  try {
    if (const auto hosts = value_in(environment, "SM_HOSTS")) {
      where = "SM_HOSTS";
      job.hosts = texts_in(text::Json::parse(*hosts), where);
      current = value_in(environment, "SM_CURRENT_HOST").value_or("");
      job.interface = value_in(environment, "SM_NETWORK_INTERFACE_NAME").value_or("");
    } else {
      where = sagemaker_folder(environment) + "/input/config/resourceconfig.json";
      if (!std::filesystem::exists(where))
        throw ConfigError(fmt::format(
            "this is no training job of SageMaker: SM_HOSTS is not set, and '{}' is not there",
            where));
      const auto config = text::Json::parse(files::read_text_file(where, "resource configuration"));
      if (!config.is_object() || !config.contains("hosts"))
        throw ConfigError(fmt::format("{}: the hosts are not a list of names", where));
      job.hosts = texts_in(config["hosts"], where);
      current = text_in(config, "current_host");
      job.interface = text_in(config, "network_interface_name");
    }
  } catch (const text::Json::exception&) {
    throw ConfigError(fmt::format("{}: this is no JSON", where));
  }
  if (value_in(environment, "SM_NUM_GPUS"))
    job.gpus = number_in(environment, "SM_NUM_GPUS", 0, hosts::kMostSlots);
  std::sort(job.hosts.begin(), job.hosts.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);  // algo-2 before algo-10
  });
  const auto found = std::find(job.hosts.begin(), job.hosts.end(), current);
  if (found == job.hosts.end())
    throw ConfigError(fmt::format("{}: the current host '{}' is none of {}", where, current,
                                  fmt::join(job.hosts, ", ")));
  job.current = static_cast<int>(found - job.hosts.begin());
  return job;
}

}  // namespace smp::environment
